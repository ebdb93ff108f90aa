import { assert, describe, it } from "@effect/vitest"
import * as Sampler from "@tg/engine/Sampler"
import { GgufReader } from "@tg/gguf/GgufReader"
import * as Metadata from "@tg/gguf/Metadata"
import * as ChatTemplate from "@tg/tokenizer/ChatTemplate"
import * as Tokenizer from "@tg/tokenizer/Tokenizer"
import { Effect, Layer, Result, Schema } from "effect"
import { tg } from "./support/run.ts"

const Told = Schema.fromJsonString(Schema.Struct({
  text: Schema.String,
  tokens: Schema.Array(Schema.Int),
  timings: Schema.Struct({ promptTokens: Schema.Int })
}))

const generate = (...args: ReadonlyArray<string>) =>
  Effect.gen(function*() {
    const { stderr, stdout } = yield* tg([
      ...["generate", "What is 17 + 25?", "--temperature", "0", "--device", "wasm", "--json"],
      ...args
    ])
    return { ...yield* Schema.decodeEffect(Told)(stdout), stderr }
  })

describe("services of the engine that are given from outside show in generate", () => {
  it.live("a GgufReader that names the model", () => {
    const renamed = Layer.effect(
      GgufReader,
      Effect.map(GgufReader, ({ read }) => ({
        read: (...args) =>
          Effect.map(read(...args), (gguf) => ({
            ...gguf,
            metadata: new Map([...gguf.metadata, ["general.name", Metadata.string("another-name")]])
          }))
      }))
    )
    return Effect.gen(function*() {
      const { stderr } = yield* Effect.provide(generate("-n", "1"), renamed)
      assert.include(stderr, "another-name on wasm")
    })
  })

  it.live("a Tokenizer that reads another number", () => {
    const misread = Layer.effect(
      Tokenizer.Tokenizer,
      Effect.map(Tokenizer.Tokenizer, ({ make }) => ({
        make: (metadata) =>
          Result.map(make(metadata), (codec) => ({
            ...codec,
            encodeSegments: (segments) =>
              codec.encodeSegments(segments.map(({ text, type }) => ({ type, text: text.replace("17", "14") })))
          }))
      }))
    )
    return Effect.gen(function*() {
      const { text } = yield* Effect.provide(generate(), misread)
      assert.include(text, "14 + 25 = 39")
    })
  })

  it.live("a ChatTemplate that adds a system line", () => {
    const line = "Answer with one word."
    const polite = Layer.effect(
      ChatTemplate.ChatTemplate,
      Effect.map(ChatTemplate.ChatTemplate, ({ make }) => ({
        make: (...args) =>
          Result.map(make(...args), (template) => ({
            ...template,
            render: ({ messages, ...rest }, ...how) =>
              template.render({ ...rest, messages: [{ role: "system", content: line }, ...messages] }, ...how)
          }))
      }))
    )
    return Effect.gen(function*() {
      const [usual, asked] = [yield* generate("-n", "1"), yield* generate("-n", "1", "--system", line)]
      const added = yield* Effect.provide(generate("-n", "1"), polite)
      assert.isAbove(added.timings.promptTokens, usual.timings.promptTokens)
      assert.deepStrictEqual(
        [added.tokens, added.timings.promptTokens],
        [asked.tokens, asked.timings.promptTokens]
      )
    })
  })

  it.live("a Sampler that takes the second likeliest token", () => {
    const taken: Array<number> = []
    const second = Layer.succeed(Sampler.Sampler, {
      isOnDevice: false,
      sample: (logits) => {
        const best = Sampler.argmax(logits)!
        const id = Sampler.argmax(logits.map((logit, id) => id === best ? -Infinity : logit))
        if (id !== undefined) taken.push(id)
        return id
      }
    })
    return Effect.gen(function*() {
      const usual = yield* generate("-n", "4")
      const { tokens } = yield* Effect.provide(generate("-n", "4"), second)
      assert.deepStrictEqual(tokens, taken.slice(0, tokens.length))
      assert.notStrictEqual(tokens[0], usual.tokens[0])
    })
  })
})
