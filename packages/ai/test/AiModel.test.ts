import { readFileSync } from "node:fs"
import { assert, describe, it, layer } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Conversations } from "@tg/engine/Conversations"
import type { Token } from "@tg/engine/Engine"
import * as ModelFile from "@tg/engine/ModelFile"
import { ByteSource, fromBytes } from "@tg/gguf/ByteSource"
import * as Models from "@tg/models/Models"
import * as Devices from "@tg/node/Devices"
import { Effect, Layer, Ref, Schema, Stream } from "effect"
import { Chat, LanguageModel, Prompt, Tool, Toolkit } from "effect/ai"
import * as AiModel from "../src/AiModel.ts"
import * as Conversation from "../src/Conversation.ts"
import * as Parts from "../src/Parts.ts"

const bytes = new Uint8Array(readFileSync(new URL("../../../apps/cli/models/tg-tiny-Q4_0.gguf", import.meta.url)))
const model = AiModel.layer({ maxTokens: 60 }).pipe(
  Layer.provide(Conversations.layer({ context: 512, conversations: 2 })),
  Layer.provide([ByteSource.layerBytes("tg-tiny", bytes), Models.layer]),
  Layer.provide(Devices.layer("wasm", { threads: 1 }))
)

describe("prompts and tools", () => {
  const Weather = Tool.make("weather", {
    description: "The weather of a city",
    parameters: Schema.Struct({ city: Schema.String }),
    success: Schema.String
  })
  const Clock = Tool.make("clock", { success: Schema.String })

  it("messages with calls and their results", () => {
    const prompt = Prompt.make([
      { role: "system", content: "Be brief." },
      { role: "user", content: [{ type: "text", text: "Is it " }, { type: "text", text: "raining?" }] },
      {
        role: "assistant",
        content: [
          { type: "reasoning", text: "I do not know." },
          { type: "text", text: "Let me see." },
          { type: "tool-call", id: "c1", name: "weather", params: { city: "Lima" }, providerExecuted: false }
        ]
      },
      { role: "tool", content: [{ type: "tool-result", id: "c1", name: "weather", isFailure: false, result: "dry" }] }
    ])
    const messages = Conversation.messagesOf(prompt)
    assert.deepEqual(messages._tag === "Success" ? messages.success : [], [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Is it raining?" },
      {
        role: "assistant",
        content: "Let me see.",
        tool_calls: [{ id: "c1", type: "function", function: { name: "weather", arguments: "{\"city\":\"Lima\"}" } }]
      },
      { role: "tool", tool_call_id: "c1", name: "weather", content: "dry" }
    ])
  })

  it("tools with their schemas, and only those of the choice", () => {
    const tools = [Weather, Clock]
    const names = (toolChoice: LanguageModel.ProviderOptions["toolChoice"]) => {
      const found = Conversation.toolsOf({ tools, toolChoice })
      return found._tag === "Success" ? found.success.map((tool) => tool.function.name) : found.failure.message
    }
    assertEquals([names("auto"), names("none"), names({ oneOf: ["clock"] })], [["weather", "clock"], [], ["clock"]])
    const all = Conversation.toolsOf({ tools, toolChoice: "auto" })
    const [weather] = all._tag === "Success" ? all.success : []
    assert.deepInclude(weather?.function, { name: "weather", description: "The weather of a city" })
    assert.deepInclude(weather?.function.parameters, { type: "object", required: ["city"] })
  })
})

describe("schemas", () => {
  it("are closed where they do not say that they are open", () => {
    const number = { type: "number" }
    const point = { type: "object", properties: { x: number } }
    const closed = { ...point, additionalProperties: false }
    const open = { ...point, additionalProperties: number }
    const any = { ...point, additionalProperties: true }
    assert.deepEqual(
      AiModel.closed({
        type: "object",
        properties: { items: { type: "array", items: point }, either: { anyOf: [any, open, { type: "null" }] } },
        allOf: [point],
        $defs: { properties: point }
      }),
      {
        type: "object",
        properties: { items: { type: "array", items: closed }, either: { anyOf: [closed, open, { type: "null" }] } },
        allOf: [point],
        $defs: { properties: closed }
      }
    )
  })
})

describe("parts", () => {
  it("sections have a start and an end, and calls come whole behind their pieces", () =>
    Effect.gen(function*() {
      let id = 0
      const { calls, close, write } = Parts.writer(Effect.sync(() => `${id++}`))
      const parts = (yield* Effect.forEach(
        [
          { type: "reasoning", text: "Hm" },
          { type: "reasoning", text: "." },
          { type: "text", text: "So" },
          { type: "tool-start", index: 0, name: "f" },
          { type: "tool-arguments", index: 0, text: "{\"a\":" },
          { type: "tool-arguments", index: 0, text: "1}" },
          { type: "tool-end", index: 0, complete: true },
          { type: "tool-start", index: 1, name: "g" },
          { type: "tool-arguments", index: 1, text: "{" },
          { type: "tool-end", index: 1, complete: false },
          { type: "text", text: "!" }
        ] as const,
        write
      )).flat()
      const whole = [...parts, ...close()]
      assert.deepEqual(whole.map((part) => "id" in part ? `${part.type} ${part.id}` : part.type), [
        "reasoning-start 0",
        "reasoning-delta 0",
        "reasoning-delta 0",
        "reasoning-end 0",
        "text-start 1",
        "text-delta 1",
        "text-end 1",
        "tool-params-start 2",
        "tool-params-delta 2",
        "tool-params-delta 2",
        "tool-params-end 2",
        "tool-call 2",
        "tool-params-start 3",
        "tool-params-delta 3",
        "tool-params-end 3",
        "text-start 4",
        "text-delta 4",
        "text-end 4"
      ])
      assert.strictEqual(calls(), 1)
      assert.deepEqual(Parts.collect(whole), [
        { type: "reasoning", text: "Hm." },
        { type: "text", text: "So" },
        { type: "tool-call", id: "2", name: "f", params: { a: 1 } },
        { type: "text", text: "!" }
      ])
    }).pipe(Effect.runPromise))
})

/** A model that says this, token by token, whatever it is asked; `asked` are its prompts. */
const saying = (texts: Array<string>, asked: Array<string>) =>
  Layer.effect(
    Conversations,
    Effect.gen(function*() {
      const file = yield* ModelFile.open(fromBytes("tg-tiny", bytes)).pipe(Effect.provide(Models.layer))
      const { codec } = file
      return Conversations.of({
        model: file,
        loadTimes: { weights: 0, compile: 0 },
        context: 1024,
        tokenizer: Effect.succeed(codec),
        status: Effect.succeed({ kept: 1, busy: 0, most: 1 }),
        generate: ({ tokens }) => {
          asked.push(codec.decode(tokens))
          const ids = codec.encode(texts.shift()!, { parseSpecial: true })
          const said = ids.map((id, i): Token => ({
            id,
            text: codec.decode([id]),
            stop: i === ids.length - 1 ? "end" : undefined
          }))
          return Effect.succeed({ promptTokens: tokens.length, cachedTokens: 0, tokens: Stream.fromIterable(said) })
        }
      })
    })
  )

describe("tools", () => {
  const Sum = Tool.make("sum", {
    description: "Adds two numbers",
    parameters: Schema.Struct({ a: Schema.Finite, b: Schema.Finite }),
    success: Schema.Finite
  })
  const tools = Toolkit.make(Sum)

  it.effect("are called with what the reply says, and the next turn knows the result", () =>
    Effect.gen(function*() {
      const asked: Array<string> = []
      const call = "<tool_call>sum<arg_key>a</arg_key><arg_value>17</arg_value>" +
        "<arg_key>b</arg_key><arg_value>25</arg_value></tool_call>"
      yield* Effect.gen(function*() {
        const chat = yield* Chat.empty
        const response = yield* chat.generateText({ prompt: "What is 17 + 25?", toolkit: tools })
        assert.deepEqual(response.toolCalls.map(({ name, params }) => ({ name, params })), [
          { name: "sum", params: { a: 17, b: 25 } }
        ])
        assert.deepEqual(response.toolResults.map(({ result }) => result), [42])
        assert.strictEqual(response.finishReason, "tool-calls")
        const next = yield* chat.generateText({ prompt: "So?", toolkit: tools })
        assert.strictEqual(next.text, "It is 42.")
      }).pipe(
        Effect.provide([
          AiModel.layer().pipe(Layer.provide(saying([call, "It is 42."], asked))),
          tools.toLayer({ sum: ({ a, b }) => Effect.succeed(a + b) })
        ])
      )
      assert.include(asked[0], "Adds two numbers")
      assert.include(asked[1], "42")
    }))
})

layer(model, { excludeTestServices: true })("tg-tiny as a language model", (it) => {
  it.effect("answers with text, and says what it used", () =>
    Effect.gen(function*() {
      const response = yield* LanguageModel.generateText({ prompt: "What is 17 + 25?" })
      assert.strictEqual(response.text, "17 + 25 = 42")
      assert.strictEqual(response.finishReason, "stop")
      assert.strictEqual(response.usage.inputTokens.total, 15)
      assert.isAbove(response.usage.outputTokens.total!, 5)
    }))

  it.effect("streams the same text", () =>
    Effect.gen(function*() {
      const parts = yield* Stream.runCollect(LanguageModel.streamText({ prompt: "What is 17 + 25?" }))
      const deltas = parts.flatMap((part) => part.type === "text-delta" ? [part.delta] : [])
      assert.strictEqual(deltas.join(""), "17 + 25 = 42")
      assert.isAbove(deltas.length, 5)
      assert.strictEqual(parts.at(-1)?.type, "finish")
    }))

  it.effect("settings of a request stand in front of those of the layer", () =>
    Effect.gen(function*() {
      const response = yield* LanguageModel.generateText({ prompt: "What is 17 + 25?" }).pipe(
        Effect.provideService(AiModel.Settings, { maxTokens: 3 })
      )
      assert.deepEqual([response.text, response.finishReason], ["17 +", "length"])
      const stopped = yield* LanguageModel.generateText({ prompt: "What is 17 + 25?" }).pipe(
        Effect.provideService(AiModel.Settings, { stop: [" ="] })
      )
      assert.strictEqual(stopped.text, "17 + 25")
    }))

  it.effect("a chat computes only its new turn", () =>
    Effect.gen(function*() {
      const chat = yield* Chat.fromPrompt([{ role: "system", content: "Answer with a number." }])
      yield* chat.generateText({ prompt: "What is 17 + 25?" })
      const next = yield* chat.generateText({ prompt: "What is 3 + 4?" })
      assert.isAbove(next.usage.inputTokens.cacheRead!, next.usage.inputTokens.uncached!)
      assert.strictEqual((yield* Ref.get(chat.history)).content.length, 5)
    }))

  it.effect("objects are held to their schema", () =>
    Effect.gen(function*() {
      const schema = Schema.Struct({ kind: Schema.Literals(["even", "odd"]), sure: Schema.Boolean })
      const { value } = yield* LanguageModel.generateObject({ prompt: "What is 17 + 25?", schema })
      assert.isTrue(Schema.is(schema)(value), JSON.stringify(value))
    }))

  it.effect("a call can be asked for, with arguments that the tool's schema allows", () =>
    Effect.gen(function*() {
      const Light = Tool.make("light", {
        parameters: Schema.Struct({ on: Schema.Boolean, room: Schema.Literals(["kitchen", "hall"]) }),
        success: Schema.String
      })
      const tools = Toolkit.make(Light)
      const response = yield* LanguageModel.generateText({
        prompt: "Light!",
        toolkit: tools,
        toolChoice: { tool: "light" }
      })
        .pipe(Effect.provide(tools.toLayer({ light: ({ on, room }) => Effect.succeed(`${room} ${on}`) })))
      assert.strictEqual(response.finishReason, "tool-calls")
      const [result] = response.toolResults
      assert.match(String(result?.result), /^(kitchen|hall) (true|false)$/)
    }))

  it.effect("what the engine refuses is an error that says why", () =>
    Effect.gen(function*() {
      const long = yield* Effect.flip(LanguageModel.generateText({ prompt: "word ".repeat(600) }))
      assert.strictEqual(long._tag === "AiError" && long.reason._tag, "InvalidRequestError")
      assert.include(long.message, "512")
    }))
})
