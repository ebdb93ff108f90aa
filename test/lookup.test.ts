/** What lookup gains where texts say again what was said, and what it costs where they do not: by GLM's times of steps on an H100, on a clock. */
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect } from "effect"
import * as Lookup from "../bench/support/lookup.ts"
import * as Drafter from "../packages/engine/src/Drafter.ts"

const costs = new Map([[1, 2.87], [2, 3.96], [4, 4.74], [8, 6.5], [16, 9.55]])
/** Devices that do one step after the other; and a GPU, on which steps under way are lost and reading takes half a millisecond. */
const devices = { plain: { costs, wait: 0, ahead: 1 }, ahead: { costs, wait: 0.5, ahead: 3 } } as const
/** As many tokens as GLM-4.7-Flash has, and tg-tiny. */
const vocabularies = [154_880, 1280] as const
const seeds = Array.from({ length: 8 }, (_, i) => 1 + 10 * i)

/** Gains of all texts by their names, the least one first. */
const gains = Effect.fnUntraced(function*(times: Lookup.Times, way: keyof typeof Lookup.ways, vocabulary: number) {
  const found = new Map<string, Array<number>>()
  for (const seed of seeds) {
    for (const each of Lookup.madeCases(vocabulary, { seed })) {
      const { answer, name, prompt } = each
      const text = [...prompt, ...answer]
      const plain = yield* Lookup.run(Lookup.simulated(text, times), prompt, answer.length)
      const made = yield* Lookup.drafted(Lookup.simulated(text, times), each, Lookup.ways[way])
      assertEquals(made.tokens, text)
      if (name === "repeat") assert.isBelow(made.drafts.steps, answer.length / 2)
      found.set(name, [...found.get(name) ?? [], made.tokensPerSecond / plain.tokensPerSecond])
    }
  }
  return (name: string): ReadonlyArray<number> => found.get(name)!.toSorted((a, b) => a - b)
})

describe("lookup", () => {
  it.effect.each(Object.keys(Lookup.ways) as Array<keyof typeof Lookup.ways>)(
    "%s takes little time where there is nothing to look up",
    (way) =>
      Effect.gen(function*() {
        for (const times of Object.values(devices)) {
          for (const vocabulary of vocabularies) {
            const [least] = (yield* gains(times, way, vocabulary))("nothing")
            assert.isAbove(least!, 0.95)
          }
        }
      })
  )
  it.effect("is at least 1.8 times as fast where a text is repeated or edited, and gains where it is renamed", () =>
    Effect.gen(function*() {
      for (const times of Object.values(devices)) {
        const [likely, paying] = [yield* gains(times, "lookup", 154_880), yield* gains(times, "auto", 154_880)]
        for (const found of [likely, paying]) {
          assert.isAbove(found("repeat")[0]!, 1.8)
          assert.isAbove(found("edit")[0]!, 1.8)
          assert.isAbove(found("rename")[0]!, 1.3)
        }
      }
    }))
  it.effect("takes over from a model that is wrong more often, as its guesses are looked at beside", () =>
    Effect.gen(function*() {
      const [repeat] = Lookup.madeCases(154_880)
      const { answer, prompt } = repeat!
      const text = [...prompt, ...answer]
      const model: Drafter.Source = {
        name: "model",
        isComputed: true,
        propose: ({ length }) =>
          Effect.succeed(Math.imul(length, 0x9e3779b1) >>> 30 === 0 ? [0] : text.slice(length, length + 1))
      }
      const drafter: Drafter.Drafting = { policy: "paying", sources: [model, Drafter.lookup] }
      const { drafts, tokens } = yield* Lookup.drafted(Lookup.simulated(text, devices.plain), repeat!, drafter)
      assertEquals(tokens, text)
      // less than two tokens a step are what the model makes of it
      assert.isBelow(drafts.steps, answer.length / 4)
    }))
})
