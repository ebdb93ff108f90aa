import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema, Stream } from "effect"
import { LanguageModel, Tool, Toolkit } from "effect/ai"
import * as AiModel from "../src/AiModel.ts"
import type { Conversation } from "../src/Model.ts"
import { ModelError } from "../src/ModelError.ts"
import type { Piece } from "../src/Protocol.ts"

const pieces: ReadonlyArray<Piece> = [
  { type: "reasoning", text: "Let me " },
  { type: "reasoning", text: "see." },
  { type: "text", text: "4" },
  { type: "text", text: "2" },
  { type: "done", ending: "end", promptTokens: 9, cachedTokens: 3, answerTokens: 5 }
]

/** A model that notes what it was told. */
const model = (reply: Stream.Stream<Piece, ModelError> = Stream.fromIterable(pieces)) => {
  const told: Array<Conversation> = []
  return { told, reply: (conversation: Conversation) => (told.push(conversation), reply) }
}

const using = (given: ReturnType<typeof model>) =>
  Effect.provideServiceEffect(LanguageModel.LanguageModel, AiModel.make(given))

describe("a model of a page as a language model", () => {
  it.effect("gives text, thinking and counts", () =>
    Effect.gen(function*() {
      const given = model()
      const { finishReason, reasoningText, text, usage } = yield* LanguageModel.generateText({
        prompt: [
          { role: "system", content: "Be brief." },
          { role: "user", content: [{ type: "text", text: "What is " }, { type: "text", text: "17 + 25?" }] }
        ]
      }).pipe(using(given))
      assert.deepEqual([text, reasoningText, finishReason], ["42", "Let me see.", "stop"])
      assert.deepEqual([usage.inputTokens.total, usage.inputTokens.cacheRead, usage.outputTokens.total], [9, 3, 5])
      assert.deepEqual(given.told, [[
        { role: "system", content: "Be brief." },
        { role: "user", content: "What is 17 + 25?" }
      ]])
    }))

  it.effect("streams it, each section with a start and an end", () =>
    Effect.gen(function*() {
      const parts = yield* Stream.runCollect(LanguageModel.streamText({ prompt: "17 + 25?" })).pipe(using(model()))
      assert.deepEqual(parts.map(({ type }) => type), [
        "reasoning-start",
        "reasoning-delta",
        "reasoning-delta",
        "reasoning-end",
        "text-start",
        "text-delta",
        "text-delta",
        "text-end",
        "finish"
      ])
    }))

  it.effect("says what it cannot do, and what went wrong", () =>
    Effect.gen(function*() {
      const tool = Toolkit.make(Tool.make("now", { success: Schema.String }))
      const withTools = yield* LanguageModel.generateText({ prompt: "Hi", toolkit: tool }).pipe(
        Effect.provide(tool.toLayer({ now: () => Effect.succeed("noon") })),
        using(model()),
        Effect.flip
      )
      assert.include(withTools.message, "calls no tools")
      const withSchema = yield* LanguageModel.generateObject({
        prompt: "Hi",
        schema: Schema.Struct({ a: Schema.String })
      }).pipe(using(model()), Effect.flip)
      assert.include(withSchema.message, "held to no schema")
      const broken = model(Stream.fail(new ModelError({ reason: "WorkerFailed", message: "it is gone" })))
      const failure = yield* LanguageModel.generateText({ prompt: "Hi" }).pipe(using(broken), Effect.flip)
      assert.include(failure.message, "it is gone")
    }))
})
