/** Drafts of a model's own prediction block, on wasm: `mtp01` of the oracle. TG_FULL=1 reads prompts in every way. */
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Device } from "@tg/runtime/Device"
import { Effect, Stream } from "effect"
import * as Drafter from "../src/Drafter.ts"
import { fromModel, type Options } from "../src/Engine.ts"
import * as Loading from "../src/Loading.ts"
import * as MemoryPlan from "../src/MemoryPlan.ts"
import { draftRoom } from "../src/PredictionProgram.ts"
import { wasm } from "./support/devices.ts"
import { tiny, tinySource } from "./support/models.ts"
import { drafts, model, next, prompt, source } from "./support/mtp01.ts"

const engine = (name: Drafter.Name, options: Options = {}) =>
  fromModel(source, model, { context: 96, ...options }).pipe(
    Effect.provideService(Drafter.Drafter, Drafter.named(name))
  )

const exact: Options = { cache: "f32", activations: "float" }
const ways: ReadonlyArray<readonly [name: string, options: Options]> = [
  ["at once", exact],
  ["in tiles", { ...exact, batchFrom: 2 }],
  ["in pieces", { ...exact, chunk: 5, batchFrom: Infinity }],
  ["as on a GPU, in steps of known sizes", { ...exact, sizes: [1, 2, 4], batchFrom: Infinity }],
  ["with a cache of halves", { activations: "float" }]
]

describe("the prediction block on wasm", () => {
  it.live.each(process.env["TG_FULL"] === "1" ? ways : ways.slice(0, 1))(
    "drafts what the reference drafts, its prompt read %s",
    ([, options]) =>
      Effect.gen(function*() {
        const { session } = yield* engine("mtp", options)
        assert.strictEqual(yield* session.next(prompt), next)
        const text = [...prompt, next]
        assertEquals(yield* session.predict(text, 4), drafts)
        // again, and fewer
        assertEquals(yield* session.predict(text, 2), drafts.slice(0, 2))
        // behind drafts that were verified, as where all of the text is read again
        const whole = [...text, ...drafts]
        yield* session.verify(text, drafts)
        const found = yield* session.predict([...whole, 7], 3)
        yield* session.advance([1])
        yield* session.predict([1, 2], 1)
        yield* session.advance(whole)
        assertEquals(yield* session.predict([...whole, 7], 3), found)
      }).pipe(Effect.scoped, Effect.provide(wasm))
  )

  it.live("goes on where the text was gone back", () =>
    Effect.gen(function*() {
      const { session } = yield* engine("mtp", exact)
      const other = [...prompt.slice(0, 9), 5, 6, 7, 8]
      yield* session.advance(other)
      yield* session.predict([...other, 9], 4)
      yield* session.advance(prompt)
      assertEquals(yield* session.predict([...prompt, next], 4), drafts)
      // the states of a text that is not here are not made up
      assertEquals(yield* session.predict([...other, 9], 4), [])
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live.each(["mtp", "auto"] as const)("changes no text: %s", (name) =>
    Effect.gen(function*() {
      const texts = (drafting: Drafter.Name) =>
        Effect.gen(function*() {
          const { generate } = yield* engine(drafting)
          return yield* Effect.forEach([0, 1, 2], (seed) =>
            Stream.runCollect(generate({
              tokens: prompt.slice(0, 5 + 3 * seed),
              maxTokens: 20,
              bias: new Map([...model.codec.vocabulary.eog].map((id) => [id, -Infinity])),
              sampling: { temperature: seed === 0 ? 0 : 0.8, topK: 0, topP: 1, minP: 0, seed }
            })))
        })
      const expected = yield* texts("off")
      const found = yield* texts(name)
      assertEquals(found.map((text) => text.map(({ id }) => id)), expected.map((text) => text.map(({ id }) => id)))
      if (name === "mtp") {
        assert.isAbove(found.reduce((sum, text) => sum + text.at(-1)!.drafts!.drafted, 0), 0)
      }
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("takes memory only where it drafts", () =>
    Effect.gen(function*() {
      const bytesOf = (name: Drafter.Name) =>
        Effect.scoped(Effect.andThen(engine(name), Effect.map(Device, (device) => device.allocatedBytes())))
      const planned = Effect.fnUntraced(function*(predicts: boolean) {
        const setting = yield* Loading.settingOf(model, { context: 96, predicts })
        const { memory } = yield* MemoryPlan.whole(model, setting)
        return memory.weightBytes + memory.kvBytes
      })
      const [off, lookup, mtp] = [yield* bytesOf("off"), yield* bytesOf("lookup"), yield* bytesOf("mtp")]
      assert.strictEqual(lookup, off)
      // no program is compiled yet; beside weights and caches there are the guesses and a row
      const own = 4 * (draftRoom + model.config.embedding)
      assert.strictEqual(mtp - off, (yield* planned(true)) - (yield* planned(false)) + own)
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("is asked for in vain where the file has none", () =>
    Effect.gen(function*() {
      const open = (name: Drafter.Name) =>
        fromModel(tinySource, tiny, { context: 64 }).pipe(
          Effect.provideService(Drafter.Drafter, Drafter.named(name)),
          Effect.scoped
        )
      const error = yield* Effect.flip(open("mtp"))
      assert.strictEqual(error._tag, "NoPrediction")
      assert.include(error.message, "nextn_predict_layers")
      assert.include(error.message, `blk.${tiny.config.layers}.nextn.eh_proj.weight`)
      yield* open("auto")
    }).pipe(Effect.provide(wasm)))
})
