export * as Threads from "./Threads.ts"
export * as WasmDevice from "./WasmDevice.ts"
