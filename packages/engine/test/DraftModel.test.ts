/** A second model that drafts, on wasm: tg-tiny for itself, which guesses every token. TG_FULL=1 tries 300 prompts. */
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Metadata from "@tg/gguf/Metadata"
import { Effect, Result, Stream } from "effect"
import * as Conversations from "../src/Conversations.ts"
import * as Drafter from "../src/Drafter.ts"
import * as DraftModel from "../src/DraftModel.ts"
import { fromModel, type Request } from "../src/Engine.ts"
import type { Drafts } from "../src/Speculation.ts"
import { keptPrograms, wasm } from "./support/devices.ts"
import { asked, tiny, tinySource } from "./support/models.ts"

const topics = ["apples", "the sea", "a red house", "stones", "two cats", "winter", "bread", "an old map"]
const requestOf = (i: number): Request => ({
  tokens: asked(
    [
      `What is ${17 + i} + ${25 + 3 * i}?`,
      `Tell me about ${topics[i % topics.length]!}.`,
      `Sort ${200 + i}, ${180 - i}, ${822 + i}.`
    ][i % 3]!
  ),
  maxTokens: 24,
  sampling: { temperature: 0.8, topK: i % 2 === 0 ? 40 : 0, topP: 0.95, minP: 0, seed: 500 + i }
})

const count = process.env["TG_FULL"] === "1" ? 300 : 4
const indices = Array.from({ length: count }, (_, i) => i)
const second = DraftModel.open(tinySource, tiny, { context: 256, conversations: 1 })

describe("a second model", () => {
  it.live("that is the first one guesses every token, at any temperature, and the text is the same", () =>
    Effect.gen(function*() {
      const texts = (drafting: Drafter.Drafting | undefined) =>
        Effect.gen(function*() {
          const { generate } = yield* fromModel(tinySource, tiny, { context: 256 })
          const made = yield* Effect.forEach(indices, (i) => Stream.runCollect(generate(requestOf(i))))
          return {
            texts: made.map((tokens) => tokens.map(({ id }) => id)),
            drafts: made.map((tokens) => tokens.at(-1)!.drafts)
          }
        }).pipe(Effect.provideService(Drafter.Drafter, drafting))
      const expected = yield* texts(undefined)
      const found = yield* texts(DraftModel.drafting(yield* second))
      assertEquals(found.texts, expected.texts)
      const sum = (name: keyof Drafts) => found.drafts.reduce((total, drafts) => total + drafts![name], 0)
      assert.isAbove(sum("drafted"), 0)
      assert.strictEqual(sum("accepted"), sum("drafted"))
      assert.isBelow(sum("steps"), expected.texts.flat().length / 2)
      // where drafts have to pay, the text is the same too
      const paying = yield* texts(DraftModel.drafting(yield* second, "auto"))
      assertEquals(paying.texts, expected.texts)
    }).pipe(Effect.scoped, Effect.provide(wasm), keptPrograms))

  it.live("drafts for several conversations, where another source has failed", () =>
    Effect.gen(function*() {
      const texts = (drafting: Drafter.Drafting | undefined) =>
        Effect.gen(function*() {
          const made = yield* Conversations.fromModel(tinySource, tiny, { context: 256, conversations: 2 })
          return yield* Effect.forEach([1, 2], (i) =>
            Effect.scoped(Effect.gen(function*() {
              const { tokens } = yield* made.generate(requestOf(i))
              return (yield* Stream.runCollect(tokens)).map(({ id }) => id)
            })), { concurrency: 2 })
        }).pipe(Effect.provideService(Drafter.Drafter, drafting))
      let asks = 0
      const broken: Drafter.Source = {
        name: "broken",
        isComputed: true,
        propose: () => Effect.suspend(() => (asks++, Effect.fail(new Error("broken"))))
      }
      const both = DraftModel.open(tinySource, tiny, { context: 256, conversations: 2 })
      const drafting: Drafter.Drafting = { policy: "likely", sources: [broken, yield* both] }
      assertEquals(yield* texts(drafting), yield* texts(undefined))
      // once for each text
      assert.strictEqual(asks, 2)
    }).pipe(Effect.scoped, Effect.provide(wasm), keptPrograms))

  it("of another vocabulary is refused, with the first token that differs", () => {
    assert.isUndefined(DraftModel.mismatch(tiny, tiny))
    const key = "tokenizer.ggml.tokens"
    const texts = Result.getOrThrow(Metadata.getStrings(tiny.gguf, key))
    const withTokens = (texts: ReadonlyArray<string>) => ({
      ...tiny,
      gguf: {
        ...tiny.gguf,
        name: "other.gguf",
        metadata: new Map([...tiny.gguf.metadata, [key, Metadata.strings(texts)]])
      }
    })
    const other = DraftModel.mismatch(tiny, withTokens(texts.with(300, "zebra")))
    assert.include(other!.message, "other.gguf cannot draft for tg-tiny: token 300 is \"zebra\" in it")
    assert.include(DraftModel.mismatch(tiny, withTokens(texts.slice(1)))!.message, `it has ${texts.length - 1} tokens`)
  })
})
