import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { h200, Profile, wasm } from "@tg/core-uop/DeviceProfile"
import * as Estimate from "@tg/jit/Estimate"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Reference from "@tg/runtime/Reference"
import { Effect, Layer } from "effect"
import type * as Loader from "../src/Loader.ts"
import * as PoolPlan from "../src/PoolPlan.ts"
import * as Prompts from "../src/Prompts.ts"
import { model } from "./support/mtp01.ts"

const context = 128

/** The plan of a pool of `mtp01`, by what programs take. */
const planned = (conversations: number, profile: typeof h200, estimate: Loader.Estimating, predicts = true) =>
  PoolPlan.plan(model, {
    ...{ activations: "float", cache: "f16", context, estimate, predicts, profile },
    prompts: Prompts.promptShape(model, { asked: undefined, context, profile })
  }, { behind: 64, conversations })

/** One launch for each program, which takes a millisecond for each token. */
const counting = (seen: { programs: number }): Loader.Estimating => (sink) =>
  Effect.sync(() => {
    seen.programs++
    const step: Estimate.LaunchEstimate["step"] = { kind: "kernel", name: "all", ast: sink, args: [], boundaries: [] }
    return {
      blocks: [],
      launches: (vars) => Effect.succeed([{ step, bytes: 10, micros: 1000 * vars["T"]!, workgroups: 1, threads: 1 }])
    }
  })

describe("the plan of a pool", () => {
  it("has the steps of rounds: what verifies, what reads, and a guess after the other", () => {
    const roundsOf = (conversations: number) => Effect.runSync(planned(conversations, h200, counting({ programs: 0 })))
    assertEquals(
      roundsOf(2).rounds.map(({ guesses, steps, verifyMs, readMs, guessMs }) => [
        ...[guesses, steps, verifyMs, readMs, guessMs]
      ]),
      [[1, 2, 4, 4, 0], [3, 4, 8, 8, 4], [7, 8, 16, 16, 12]]
    )
    // 40 conversations in steps of 32 tokens; the block takes 32 of them and then 8
    assertEquals(roundsOf(40).rounds.map(({ steps }) => steps), [3 + 2 + 1, 5 + 4 + 1 + 4, 10 + 8 + 2 + 12])
    for (const { launches, movedBytes, predictedMs, steps, verifyMs, readMs, guessMs } of roundsOf(40).rounds) {
      assertEquals([launches, movedBytes, predictedMs], [steps, 10 * steps, verifyMs + readMs + guessMs])
    }
  })
  it("looks at each program once", () => {
    const seen = { programs: 0 }
    Effect.runSync(planned(40, h200, counting(seen)))
    const before = seen.programs
    // more rounds of the same sizes need no others
    seen.programs = 0
    Effect.runSync(planned(72, h200, counting(seen)))
    assert.strictEqual(seen.programs, before)
  })
  it("counts the block's weights, cache and programs only where it is loaded", () =>
    Effect.gen(function*() {
      const pipeline = yield* Pipeline
      const estimate: Loader.Estimating = (sink) => Estimate.estimate(pipeline, sink)
      const block = yield* planned(2, wasm, estimate)
      const none = yield* planned(2, wasm, estimate, false)
      assertEquals(none.rounds, [])
      for (const part of ["weightBytes", "kvBytes", "fewBytes"] as const) assert.isAbove(block[part], none[part])
      const [one, three] = block.rounds
      assert.isAbove(one!.launches, block.step.launches)
      assert.isAbove(three!.predictedMs, one!.predictedMs)
      assert.isAbove(three!.guessMs, 0)
    }).pipe(
      Effect.provide(Pipeline.layer.pipe(Layer.provide([Reference.renderer(), Profile.layer(wasm)]))),
      Effect.runPromise
    ))
})
