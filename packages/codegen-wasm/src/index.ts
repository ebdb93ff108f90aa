export * as Wasm from "./Wasm.ts"
export * as WasmHost from "./WasmHost.ts"
