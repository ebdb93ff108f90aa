import { assert, describe, it } from "@effect/vitest"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import { h200, Profile } from "@tg/core-uop/DeviceProfile"
import { Checked } from "@tg/core-uop/Spec"
import { Arena } from "@tg/core-uop/UOp"
import * as StepProgram from "@tg/engine/StepProgram"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import * as Config from "@tg/models-deepseek2/Config"
import * as Shapes from "@tg/models-deepseek2/Shapes"
import * as Weights from "@tg/models-deepseek2/Weights"
import { Rangeify } from "@tg/rangeify/Rangeify"
import { Device } from "@tg/runtime/Device"
import { Effect, Layer, Result } from "effect"

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
    const model = yield* Effect.fromResult(Result.gen(function*() {
      const shape = yield* Shapes.find("glm-4.7-flash:q4_0", layers)
      const config = yield* Config.fromMetadata(shape)
      return { config, weights: yield* Weights.find(config, shape) }
    }))
    let kernels = 0
    const device = Layer.mock(Device, {
      profile,
      allocatedBytes: () => 0,
      load: (program) =>
        Effect.sync(() => {
          kernels++
          return { program }
        })
    })
    const renderer = WgslRenderer.layer({ subgroupSize: profile.subgroupSize, packedDot: profile.packedDot })
    const compiler = Compiler.layer.pipe(Layer.provide([renderer, Profile.layer(profile)]))
    const { compile } = yield* Effect.provide(
      Jit,
      Jit.layer.pipe(Layer.provide([device, compiler, Rangeify.layer]))
    )
    const size = { activations: "int8", cache: "f16", context: 4096 } as const
    const decode = yield* nodesMade(Effect.suspend(() => compile(StepProgram.decodeProgram(model, size).sink)))
    const prompt = yield* nodesMade(Effect.suspend(() =>
      compile(StepProgram.stepProgram(model, { ...size, chunk: 512, order: "features", rows: "last" }).sink)
    ))
    return { decode, prompt, kernels }
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
