/** A model by somebody who knows `@tg/tensor` alone: what the compiler finds in it without being asked. */
import { assert, it } from "@effect/vitest"
import { h200, Profile } from "@tg/core-uop/DeviceProfile"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { Checked } from "@tg/core-uop/Spec"
import type { UOp } from "@tg/core-uop/UOp"
import { Split } from "@tg/egraph/SplitStage"
import * as Reference from "@tg/runtime/Reference"
import { Effect, Layer } from "effect"
import { Pipeline } from "../src/Pipeline.ts"
import { model } from "./support/stranger.ts"

const launches = (...stages: ReadonlyArray<Layer.Layer<never>>) =>
  Effect.gen(function*() {
    const { schedule } = yield* Pipeline
    return (yield* schedule(model({ context: 2048, heads: 32, keyHeads: 8, size: 128, width: 14336 }).sink)).steps
      .map(({ name }) => name)
  }).pipe(
    Effect.provide(Pipeline.layer.pipe(Layer.provide([Reference.renderer(), Profile.layer(h200), ...stages]))),
    Effect.provideService(Checked, true)
  )

it.effect("attention over a context is split, and norms are part of products", () =>
  Effect.gen(function*() {
    assert.deepStrictEqual(yield* launches(), [
      "q_4096+k_1024+values_8_128",
      "keys_8_128",
      // the mix, the maximum and the sum of 64 positions for each head, together
      "attention_8_4_16_136",
      "attention_8_4_128",
      "x_4096",
      "up_14336",
      "out_4096"
    ])
  }))

it.effect("without the stage that splits, 32 heads go over all positions one after the other", () =>
  Effect.gen(function*() {
    assert.deepStrictEqual(yield* launches(Split.layerNone), [
      "q_4096+k_1024+values_8_128",
      "keys_8_128",
      "q_8_4_2048",
      "attention_8_4_128",
      "x_4096",
      "up_14336",
      "out_4096"
    ])
  }))

it.effect("the same values", () =>
  Effect.gen(function*() {
    const { split } = yield* Split
    const made = model({ context: 1024, heads: 4, keyHeads: 2, size: 8, width: 48 })
    const run = (sink: UOp, start: number): ReadonlyArray<number> => {
      const buffers = new Map(made.buffers.map(({ node, shape }, i) => [
        node,
        Float32Array.from({ length: shape.reduce<number>((n, d) => n * Number(d), 1) }, (_, k) => Math.sin(k * 0.7 + i))
      ]))
      evaluate([sink], { buffers, vars: { start } })
      return Array.from(buffers.get(made.out.node)!)
    }
    const { reports, sink } = split(made.sink, h200)
    assert.deepStrictEqual(reports.flatMap(({ piece }) => piece ?? []), [256])
    for (const start of [0, 255, 256, 700, 1023]) {
      const [before, after] = [run(made.sink, start), run(sink, start)]
      before.forEach((x, i) => assert.closeTo(x, after[i]!, 1e-4 * Math.max(...before.map(Math.abs))))
    }
  }).pipe(Effect.provide(Split.layer)))
