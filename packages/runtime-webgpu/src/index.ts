export * as WebGpu from "./WebGpu.ts"
export * as WebGpuInfo from "./WebGpuInfo.ts"
