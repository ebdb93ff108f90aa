export * as WasmDevice from "./WasmDevice.ts"
