import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import { type Program, RenderError } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import * as Conformance from "@tg/runtime/Conformance"
import { describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Worker } from "node:worker_threads"
import * as Wasm from "@tg/codegen-wasm/Wasm"
import { devectorize } from "@tg/devectorize/Devectorize"
import { linearize } from "@tg/devectorize/Linearize"
import { assembler } from "../../codegen-wasm/test/support/execute.ts"
import * as NodeThreads from "../src/NodeThreads.ts"
import * as WasmDevice from "../src/WasmDevice.ts"

const compile = (kernel: UOp): Effect.Effect<Program> =>
  Effect.sync(() => {
    const { name } = kernel.arg as { readonly name: string }
    const expanded = devectorize(name, kernel, Wasm.caps, DeviceProfile.wasm)
    if ("message" in expanded) throw expanded
    const program = Wasm.render(name, linearize(expanded, Wasm.caps), assembler)
    if (program instanceof RenderError) throw program
    return program
  })

describe("conformance", () => {
  for (const { effect, name } of Conformance.cases(compile)) {
    it.effect(name, () => effect.pipe(Effect.provide(WasmDevice.layer())))
  }
})

// every launch is divided, however small
const threads = NodeThreads.layer(Worker, 3, { sharedInstructions: 1 })

describe("conformance with three threads", () => {
  for (const { effect, name } of Conformance.cases(compile)) {
    it.effect(name, () => effect.pipe(Effect.provide(WasmDevice.layer().pipe(Layer.provide(threads)))))
  }
})
