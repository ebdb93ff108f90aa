export * as Wasm from "./Wasm.ts"
