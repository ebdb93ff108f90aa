/** A second model that drafts, on wasm: tg-tiny for itself, which guesses every token. TG_FULL=1 tries 300 prompts. */
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Metadata from "@tg/gguf/Metadata"
import { Effect, Result, Schema, Stream } from "effect"
import * as Conversations from "../src/Conversations.ts"
import * as Drafter from "../src/Drafter.ts"
import * as DraftModel from "../src/DraftModel.ts"
import { fromModel, type Request, type Token } from "../src/Engine.ts"
import type { Drafts } from "../src/Speculation.ts"
import { wasm } from "./support/devices.ts"
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

class Broken extends Schema.TaggedError<Broken>()("Broken", { message: Schema.String }) {}

const broken: Drafter.Source = {
  name: "broken",
  isComputed: true,
  propose: () => Effect.fail(new Broken({ message: "broken" }))
}

/** The texts of one conversation after the other. */
const texts = (drafting: Drafter.Drafting | undefined) =>
  Effect.gen(function*() {
    const { generate } = yield* fromModel(tinySource, tiny, { context: 256 })
    return yield* Effect.forEach(indices, (i) => Stream.runCollect(generate(requestOf(i))))
  }).pipe(Effect.provideService(Drafter.Drafter, drafting))

/** The same of two at a time. */
const textsOfTwo = (drafting: Drafter.Drafting) =>
  Effect.gen(function*() {
    const made = yield* Conversations.fromModel(tinySource, tiny, { context: 256, conversations: 2 })
    return yield* Effect.forEach(indices.slice(0, 3), (i) =>
      Effect.scoped(Effect.gen(function*() {
        return yield* Stream.runCollect((yield* made.generate(requestOf(i))).tokens)
      })), { concurrency: 2 })
  }).pipe(Effect.provideService(Drafter.Drafter, drafting))

const idsOf = (all: ReadonlyArray<ReadonlyArray<Token>>) => all.map((tokens) => tokens.map(({ id }) => id))

describe("a second model", () => {
  it.live("that is the first one guesses every token, at any temperature, and the text is the same", () =>
    Effect.gen(function*() {
      const expected = idsOf(yield* texts(undefined))
      const source = yield* DraftModel.open(tinySource, tiny, { context: 256, conversations: 2 })
      const found = yield* texts(DraftModel.drafting(source))
      assertEquals(idsOf(found), expected)
      const sum = (name: keyof Drafts) => found.reduce((total, tokens) => total + tokens.at(-1)!.drafts![name], 0)
      assert.isAbove(sum("drafted"), 0)
      assert.strictEqual(sum("accepted"), sum("drafted"))
      assert.isBelow(sum("steps"), expected.flat().length / 2)
      // for conversations at the same time, where another source has failed
      const others = yield* textsOfTwo({ policy: "likely", sources: [broken, source] })
      assertEquals(idsOf(others), expected.slice(0, 3))
      for (const tokens of others) {
        const { accepted, drafted } = tokens.at(-1)!.drafts!
        assert.isAbove(drafted, 0)
        assert.strictEqual(accepted, drafted)
      }
    }).pipe(Effect.scoped, Effect.provide(wasm)))

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
