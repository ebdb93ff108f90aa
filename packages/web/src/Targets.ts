/** What programs of a page are compiled for. Compilers are fetched when they are started. */
import type { Memory, Simd } from "@tg/codegen-wasm/Wasm"
import type { rendererOptions } from "@tg/runtime-webgpu/WebGpuInfo"
import { Effect } from "effect"
import type { Target } from "./Replaying.ts"

/** Kinds of WebAssembly. */
export interface WasmOptions {
  readonly memory: Memory
  /** How bytes are multiplied. */
  readonly simd: Simd
}

/** All of them. */
export const ofWasm: ReadonlyArray<WasmOptions> = (["shared", "own"] as const).flatMap((memory) =>
  (["plain", "words", "pairs"] as const).map((simd) => ({ memory, simd }))
)

/** The name of one. */
export const nameOf = ({ memory, simd }: WasmOptions): string => `${memory}-${simd}`

/** WebAssembly, with memory that threads share or of its own, and products of bytes as the host has them. */
export const wasm = (options: WasmOptions): Target => ({
  stages: `wasm ${nameOf(options)}`,
  compiler: Effect.flatMap(
    Effect.promise(() => Promise.all([import("./Compiling.ts"), import("@tg/codegen-wasm/Wasm")])),
    ([{ start }, { layerWith }]) => start(layerWith(options))
  )
})

/** WebGPU, as a device is. */
export const webgpu = (options: ReturnType<typeof rendererOptions>): Target => ({
  stages: `wgsl ${JSON.stringify(options)}`,
  compiler: Effect.flatMap(
    Effect.promise(() => Promise.all([import("./Compiling.ts"), import("@tg/codegen-wgsl/WgslRenderer")])),
    ([{ startForGpu }, { layer }]) => startForGpu(layer(options))
  )
})
