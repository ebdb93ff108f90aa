/** Drafts of the prediction block for conversations that take their steps together, on wasm: `mtp01` of the oracle. TG_FULL=1: of a device that draws. */
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Device } from "@tg/runtime/Device"
import { Effect, Layer, Stream } from "effect"
import * as Drafter from "../src/Drafter.ts"
import { fromModel as engineFrom, type Request } from "../src/Engine.ts"
import * as Loading from "../src/Loading.ts"
import * as MemoryPlan from "../src/MemoryPlan.ts"
import * as Parallel from "../src/Parallel.ts"
import { stepsOf } from "../src/PoolPrediction.ts"
import * as PoolMemory from "../src/PoolMemory.ts"
import * as Random from "../src/Random.ts"
import * as Sampler from "../src/Sampler.ts"
import { fromModel } from "../src/Together.ts"
import { onItsOwn, wasm } from "./support/devices.ts"
import { drafts, model, next, prompt, source } from "./support/mtp01.ts"

const exact = { context: 128, cache: "f32", activations: "float" } as const
const isFull = process.env["TG_FULL"] === "1"
const drafting = (name: Drafter.Name) => Effect.provideService(Drafter.Drafter, Drafter.named(name))
const opened = (name: Drafter.Name, options: Parallel.Options) =>
  Parallel.open(source, model, { ...exact, ...options }).pipe(drafting(name))

/** Requests whose texts begin alike or not, greedy and drawn. */
const requests = Array.from({ length: 12 }, (_, i): Request => ({
  tokens: [...prompt.slice(0, 3 + i), ...i % 3 === 0 ? [] : [7 + i]],
  maxTokens: 12 + 5 * (i % 4),
  bias: i % 5 === 4 ? new Map([[3, 1]]) : undefined,
  sampling: { ...Sampler.greedy, temperature: i % 2 === 0 ? 0 : 0.8, topK: i % 2 === 1 ? 40 : 0, seed: i }
}))

/** The tokens of each, begun after a random number of turns of the others, and how many drafts were right. */
const answers = Effect.fnUntraced(function*(name: Drafter.Name, options: Parallel.Options) {
  const { generate } = yield* fromModel(source, model, { ...exact, ...options }).pipe(drafting(name))
  const found = yield* Effect.forEach(requests, (request, i) =>
    Effect.gen(function*() {
      for (let n = 0; n < Random.words(5, i)[0] % 40; n++) yield* Effect.yieldNow
      return yield* Stream.runCollect((yield* generate(request)).tokens)
    }).pipe(Effect.scoped), { concurrency: options.parallel })
  return {
    ids: found.map((tokens) => tokens.map(({ id }) => id)),
    accepted: found.reduce((sum, tokens) => sum + (tokens.at(-1)?.drafts?.accepted ?? 0), 0)
  }
}, Effect.scoped)

/** One after the other, without drafts. */
const expectedAnswers = answers("off", { parallel: 1 }).pipe(Effect.provide(Layer.fresh(wasm)))

describe("what the block has to read", () => {
  it("is read in few steps, the last of which has the last token of each text", () => {
    const steps = stepsOf([{ from: 2, length: 9 }, { from: 0, length: 1 }, { from: 5, length: 8 }], 4)
    assertEquals(steps.map((step) => step.map(({ position, text }) => `${text}:${position}`)), [
      ["0:2", "0:3", "0:4", "0:5"],
      ["0:6", "0:7", "2:5"],
      ["0:8", "1:0", "2:6", "2:7"]
    ])
    assert.lengthOf(stepsOf([{ from: 3, length: 5 }], 4), 1)
  })
})

describe("guesses for conversations in one step", () => {
  it.live("are those of the reference, of many at once and alone, and again behind drafts that were wrong", () =>
    Effect.gen(function*() {
      const { counts, join } = yield* opened("mtp", { parallel: 4 })
      const texts = [[...prompt, next], [...prompt.slice(0, 9), 5, 6], [...prompt, next], [1, 2, 3]]
      const guessed = (count: number) =>
        Effect.forEach(texts, (text, i) =>
          Effect.gen(function*() {
            for (let n = 0; n < 7 * i; n++) yield* Effect.yieldNow
            const steps = yield* join
            yield* steps.advance(text.slice(0, -1))
            const first = yield* steps.predict(text, count)
            // drafts that no model would make, and those of another text in between
            yield* steps.verify(text, [1, 2, 3])
            assertEquals(yield* steps.predict(text, count), first)
            const on = [...text, 1, 2, 9]
            const second = yield* steps.predict(on, count)
            return { first, second }
          }), { concurrency: 4 })
      const together = yield* guessed(4)
      assertEquals(together[0]!.first, drafts)
      assertEquals(together[2], together[0])
      // three times for each, together as soon as they have caught up with each other
      yield* Effect.replicateEffect(Effect.yieldNow, 5, { discard: true })
      assert.strictEqual(counts().guessed, 12)
      assert.isAtMost(counts().guesses, 8)
      const { session } = yield* engineFrom(source, model, exact).pipe(drafting("mtp"))
      for (const [i, text] of texts.entries()) {
        yield* session.advance(text.slice(0, -1))
        assertEquals(yield* session.predict(text, 4), together[i]!.first)
        yield* session.verify(text, [1, 2, 3])
        assertEquals(yield* session.predict([...text, 1, 2, 9], 4), together[i]!.second)
      }
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("change no text, admitted at random moments, while memory is short", () =>
    Effect.gen(function*() {
      const expected = yield* expectedAnswers
      for (const [name, conversations] of [["mtp", 5], ["mtp", 1], ["auto", 5]] as const) {
        const found = yield* answers(name, { parallel: 5, conversations })
        assertEquals(found.ids, expected.ids)
        if (name === "mtp") assert.isAbove(found.accepted, 0)
      }
    }).pipe(Effect.provide(wasm)))

  it.live.skipIf(!isFull)("take the memory that is planned, where they are wanted", () =>
    Effect.gen(function*() {
      const planned = Effect.fnUntraced(function*(predicts: boolean) {
        const setting = yield* Loading.settingOf(model, exact)
        const pool = { ...Parallel.poolOf(setting, { draws: "host", parallel: 4 }), predicts }
        const memory = yield* PoolMemory.memoryOf(model, setting, pool)
        return MemoryPlan.mostBytes(memory) - memory.stagingBytes
      })
      const taken = (name: Drafter.Name) =>
        Effect.scoped(Effect.gen(function*() {
          const { join } = yield* opened(name, { parallel: 4 })
          const steps = yield* join
          // a batch
          const text = Array.from({ length: 120 }, (_, i) => prompt[i % prompt.length]!)
          yield* steps.advance(text)
          yield* steps.verify(text, [1, 2])
          yield* steps.predict([...text, 1], 3)
          return (yield* Device).allocatedBytes()
        }))
      const [without, guessing] = yield* Effect.all([taken("off"), taken("mtp")])
      assertEquals([without, guessing], yield* Effect.all([planned(false), planned(true)]))
      assert.isAbove(guessing!, without!)
    }).pipe(Effect.provide(wasm)))

  it.live.skipIf(!isFull)(
    "change no text where the device draws, with programs for known numbers of tokens",
    () =>
      Effect.gen(function*() {
        const expected = yield* expectedAnswers
        const found = yield* answers("mtp", { parallel: 5, draws: "device", sizes: [8], batchFrom: Infinity })
        assertEquals(found.ids, expected.ids)
        assert.isAbove(found.accepted, 0)
      }).pipe(Effect.provide(onItsOwn()))
  )
})
