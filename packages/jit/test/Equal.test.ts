import { assert, it } from "@effect/vitest"
import { h200, Profile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import type { Weight } from "@tg/egraph/Bodies"
import { Equality } from "@tg/egraph/Equality"
import * as Estimate from "@tg/jit/Estimate"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Reference from "@tg/runtime/Reference"
import * as Program from "@tg/tensor/Program"
import { buffer, type Tensor } from "@tg/tensor/Tensor"
import { Effect, Layer } from "effect"

/** An e-graph that finds nothing, and asks what the first body weighs. */
const weighing = (heard: (weight: Weight) => void) =>
  Layer.succeed(Equality, {
    id: "weighing",
    optimise: (sink: UOp, { weigh }) =>
      Effect.map(weigh(sink, "layer"), (weight) => (heard(weight), { sink, bodies: [] }))
  })

it.effect("weighs a body as a plan predicts it, with the threads that its kernels will have", () =>
  Effect.gen(function*() {
    const arena = new Arena()
    const tensor = (id: number, shape: ReadonlyArray<number>): Tensor => buffer(arena, id, { shape, dtype: DType.f32 })
    // rows enough for several waves of workgroups
    const [y] = Program.call(
      "layer",
      [tensor(0, [16, 512]), tensor(1, [65536, 512])],
      (x, w) => [x!.unsqueeze(1).mul(w!).sum(-1)]
    )
    const { sink } = Program.make([Program.assign(tensor(2, [16, 65536]), y!)])
    let weight: Weight | undefined
    const pipeline = yield* Pipeline.pipe(
      Effect.provide(Pipeline.layer),
      Effect.provide([Reference.renderer(), Profile.layer(h200), weighing((own) => void (weight = own))])
    )
    const estimate = yield* Estimate.estimate(pipeline, sink)
    const launches = (yield* estimate.launches({})).filter(({ step }) => step.body === "layer")
    assert.strictEqual(weight!.launches, launches.length)
    assert.closeTo(weight!.micros, launches.reduce((all, { micros }) => all + micros, 0), 1e-9)
  }))
