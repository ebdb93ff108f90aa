export * as Conformance from "./Conformance.ts"
export * as ConformanceKernels from "./ConformanceKernels.ts"
export * as Device from "./Device.ts"
export * as Reference from "./Reference.ts"
