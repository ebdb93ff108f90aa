import { Profile } from "@tg/core-uop/DeviceProfile"
import type { Program } from "@tg/core-uop/Program"
import { Devectorize, Linearize } from "@tg/devectorize/Devectorize"
import { Equality } from "@tg/egraph/Equality"
import { Split } from "@tg/egraph/SplitStage"
import { Compiler } from "@tg/jit/Compiler"
import { Pipeline } from "@tg/jit/Pipeline"
import { Postrange } from "@tg/postrange/Postrange"
import { Rangeify } from "@tg/rangeify/Rangeify"
import type { TensorProgram } from "@tg/tensor/Program"
import { Effect, Layer } from "effect"

/** The compiler with the stages as they come, except for `Heuristics`, which stays open. */
export const compilerLayer = Compiler.layer.pipe(
  Layer.provide(Pipeline.layerNoDeps),
  Layer.provide([Equality.layer, Split.layer, Rangeify.layer, Postrange.layer, Devectorize.layer, Linearize.layer]),
  Layer.merge(Rangeify.layer)
)

/** Every kernel of a tensor program as a program of the target, in order. */
export const compile = Effect.fn("compile")(function*(program: TensorProgram) {
  const rangeify = yield* Rangeify
  const compiler = yield* Compiler
  const { maxStorageBuffers } = yield* Profile
  const { steps } = yield* rangeify.schedule(program.sink, { maxStorageBuffers })
  const programs: Array<Program> = []
  for (const step of steps) {
    if (step.kind === "kernel") programs.push(yield* compiler.compile(step.name, step.ast))
  }
  return programs
})
