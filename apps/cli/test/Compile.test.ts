import { assert, describe, it } from "@effect/vitest"
import { h200 } from "@tg/core-uop/DeviceProfile"
import { Checked } from "@tg/core-uop/Spec"
import { Arena } from "@tg/core-uop/UOp"
import * as StepProgram from "@tg/engine/StepProgram"
import { Jit } from "@tg/jit/Jit"
import { Effect, Layer } from "effect"
import { counting, modelOf } from "./support/compiling.ts"

const profile = h200

/** Counts the nodes that are made meanwhile, by whatever stage, known ones included: nothing is compiled without. */
const nodesMade = <A, E, R>(work: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const { make } = Arena.prototype
    let nodes = 0
    Arena.prototype.make = function(this: Arena, ...args) {
      nodes++
      return make.apply(this, args)
    }
    return work.pipe(
      Effect.map(() => nodes),
      Effect.ensuring(Effect.sync(() => {
        Arena.prototype.make = make
      }))
    )
  })

/** The work of compiling the programs of a model with so many layers, from its numbers to WGSL. */
const workOf = (layers: number) =>
  Effect.gen(function*() {
    const model = yield* modelOf("glm-4.7-flash:q4_0", layers)
    const { kernels, layer } = counting(profile)
    const { compile } = yield* Effect.provide(
      Jit,
      Jit.layer.pipe(Layer.provide(layer))
    )
    const size = { activations: "int8", cache: "f16", context: 4096 } as const
    const decode = yield* nodesMade(Effect.suspend(() => compile(StepProgram.decodeProgram(model, size).sink)))
    const prompt = yield* nodesMade(Effect.suspend(() =>
      compile(StepProgram.stepProgram(model, { ...size, chunk: 512, order: "features", rows: "last" }).sink)
    ))
    return { decode, prompt, kernels: kernels() }
  }).pipe(Effect.provideService(Checked, false), Effect.scoped)

describe("compiling", () => {
  it.effect("60 layers is the work of 10: blocks of one kind are built, scheduled and compiled once", () =>
    Effect.gen(function*() {
      const [few, many] = [yield* workOf(10), yield* workOf(60)]
      assert.strictEqual(many.kernels, few.kernels)
      assert.isBelow(many.decode, 1.2 * few.decode)
      assert.isBelow(many.prompt, 1.2 * few.prompt)
    }))
})
