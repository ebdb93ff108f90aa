/** What rounds run, compiled for a device that is not there. */
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { h200, Profile } from "@tg/core-uop/DeviceProfile"
import * as Estimate from "@tg/jit/Estimate"
import { Pipeline } from "@tg/jit/Pipeline"
import { known } from "@tg/models/Models"
import * as Reference from "@tg/runtime/Reference"
import type { TensorProgram } from "@tg/tensor/Program"
import { Effect, Layer } from "effect"
import * as RoundProgram from "../src/RoundProgram.ts"
import { guessSizes } from "../src/RoundLength.ts"
import * as StepPlan from "../src/StepPlan.ts"
import * as StepProgram from "../src/StepProgram.ts"

const context = 4096
const shape = { activations: "int8", cache: "f16", context, profile: h200 } as const

const pipeline = Pipeline.layer.pipe(Layer.provide([Reference.renderer(), Profile.layer(h200)]))

/** Launches behind so many tokens. */
const launchesOf = Effect.fnUntraced(function*({ sink }: TensorProgram, behind: number, tokens: number) {
  const made = yield* Estimate.estimate(yield* Pipeline, sink)
  return yield* made.launches({ T: tokens, startPos: behind, pieces: Math.ceil((behind + tokens) / 64) })
})

const bytesOf = (launches: ReadonlyArray<Estimate.LaunchEstimate>): number =>
  launches.reduce((sum, { bytes }) => sum + bytes, 0)

describe("a round's step", () => {
  it.effect(
    "attends to the session's cache as a step of as many tokens does: all of them share what is read",
    () =>
      Effect.gen(function*() {
        const model = yield* Effect.fromResult(StepPlan.fromShape("glm-4.7-flash-mtp:q4_0", known))
        const steps: Array<ReadonlyArray<Estimate.LaunchEstimate>> = []
        for (const guesses of guessSizes) {
          const tokens = guesses + 1
          const own = { ...shape, chunk: tokens, isWhole: true, order: "tokens", rows: "all", states: true } as const
          const round = yield* launchesOf(RoundProgram.verifyProgram(model, shape, tokens), 2048, tokens)
          const step = yield* launchesOf(StepProgram.stepProgram(model, own), 2048, tokens)
          const attention = (launches: typeof round) =>
            launches.flatMap(({ step: { name }, workgroups }) =>
              name.startsWith("attn_mix") ? [[name, workgroups]] : []
            )
          assert.isAtLeast(attention(step).length, 47)
          assertEquals(attention(round), attention(step))
          // the draws read the logits again
          assert.isBelow(bytesOf(round), 1.002 * bytesOf(step))
          steps.push(round)
        }
        // a round of two guesses reads the experts of three tokens, not of four
        assert.isBelow(bytesOf(steps[1]!), 0.84 * bytesOf(steps[2]!))
      }).pipe(Effect.provide(pipeline)),
    60_000
  )
})
