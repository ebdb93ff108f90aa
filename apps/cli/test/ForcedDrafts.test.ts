/** `bench --accept`: what is measured is a device at work, not one that idled while programs were compiled. */
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Drafter from "@tg/engine/Drafter"
import type { Round } from "@tg/engine/Rounds"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import * as ForcedDrafts from "../src/ForcedDrafts.ts"

/** A session that is a clock: rounds take as many milliseconds as tokens, and six times as many on a device that has idled. */
const idling = (runsAhead: boolean) => {
  let isAwake = false
  const compiled = new Set<number>()
  const compile = (tokens: number) =>
    Effect.suspend(() => {
      if (compiled.has(tokens)) return Effect.void
      compiled.add(tokens)
      isAwake = false
      return TestClock.adjust(2000)
    })
  const take = (tokens: number) =>
    Effect.andThen(compile(tokens), Effect.suspend(() => TestClock.adjust((isAwake ? 1 : 6) * tokens)))
  const session: Parameters<typeof ForcedDrafts.measure>[0] = {
    context: 4096,
    vocabulary: 1000,
    sampler: { isOnDevice: true, sample: () => 1 },
    advance: () => Effect.succeed(new Float32Array(1000)),
    keep: () => Effect.void,
    predict: (_, most) => Effect.succeed(Array.from({ length: most }, () => 1)),
    prepareDrafts: compile,
    round: (_, { guesses, right = () => 0 }) =>
      Effect.gen(function*() {
        if (!runsAhead) return undefined
        yield* take(guesses + 1)
        const ones = Array.from({ length: guesses + 1 }, () => 1)
        const round: Round = { drafts: ones.slice(1), ids: ones, right: right() }
        return round
      }),
    verify: () => Effect.die("the device draws"),
    verifyDrawn: (_, drafts) => Effect.as(take(drafts.length + 1), Array.from({ length: drafts.length + 1 }, () => 1))
  }
  const warm = Effect.sync(() => {
    isAwake = true
  })
  return { session, warm }
}

const measured = (runsAhead: boolean) => {
  const { session, warm } = idling(runsAhead)
  return ForcedDrafts.measure(session, { accept: 0.8, tokens: [5], count: 64, plain: 500, warm }).pipe(
    Effect.provideService(Drafter.Drafter, Drafter.named("mtp"))
  )
}

describe("drafts that are taken for right", () => {
  it.effect("are measured in rounds of the sizes that texts have, while the device is awake", () =>
    Effect.gen(function*() {
      const found = yield* measured(true)
      assertEquals(found.map(({ drafts, verifyMs }) => [drafts, verifyMs]), [[1, 2], [2, 3], [3, 4], [7, 8]])
      assert.isTrue(found.every(({ isAhead }) => isAhead))
    }))
  it.effect("are measured one after the other where nothing runs ahead", () =>
    Effect.gen(function*() {
      const found = yield* measured(false)
      assertEquals(found.map(({ drafts, verifyMs }) => [drafts, verifyMs]), [[1, 2], [2, 3], [3, 4], [5, 6], [7, 8]])
      assert.isFalse(found.some(({ isAhead }) => isAhead))
    }))
})
