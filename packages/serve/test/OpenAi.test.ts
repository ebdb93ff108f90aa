import { Effect, Metric } from "effect"
import OpenAI, { APIError, BadRequestError, NotFoundError } from "openai"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { FairQueue } from "../src/FairQueue.ts"
import * as Metrics from "../src/Metrics.ts"
import { codec } from "./support/fake.ts"
import { type Running, start } from "./support/server.ts"

let server: Running
let client: OpenAI
beforeAll(async () => {
  server = await start()
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 })
})
afterAll(() => server.close())

const sum = (a: number, b: number) => [{ role: "user" as const, content: `What is ${a} + ${b}?` }]

const story = [{ role: "user" as const, content: "Tell me a story about a fox." }]

describe("openai", () => {
  it("lists the model", async () => {
    const models = await client.models.list()
    assert.deepEqual(models.data.map(({ id }) => id), ["tg-tiny"])
    assert.strictEqual((await client.models.retrieve("tg-tiny")).id, "tg-tiny")
  })

  it("chats", async () => {
    const answer = await client.chat.completions.create({ model: "tg-tiny", temperature: 0, messages: sum(17, 25) })
    assert.strictEqual(answer.choices[0]?.message.content, "17 + 25 = 42")
    assert.strictEqual(answer.choices[0]?.finish_reason, "stop")
    assert.strictEqual(answer.usage?.prompt_tokens, 15)
    assert.strictEqual(answer.usage?.completion_tokens, 10)
  })

  it("streams", async () => {
    const stream = await client.chat.completions.create({
      model: "tg-tiny",
      temperature: 0,
      messages: sum(17, 25),
      stream: true,
      stream_options: { include_usage: true }
    })
    const pieces: Array<string> = []
    const reasons: Array<string> = []
    let total = 0
    for await (const chunk of stream) {
      for (const { delta, finish_reason } of chunk.choices) {
        if (typeof delta.content === "string" && delta.content !== "") pieces.push(delta.content)
        if (finish_reason !== null) reasons.push(finish_reason)
      }
      total = chunk.usage?.total_tokens ?? total
    }
    assert.strictEqual(pieces.join(""), "17 + 25 = 42")
    assert.isAbove(pieces.length, 5)
    assert.deepEqual(reasons, ["stop"])
    assert.strictEqual(total, 25)
  })

  it("gives several answers, each of its own seed", async () => {
    const draw = { model: "tg-tiny", temperature: 1, seed: 7, max_tokens: 12, messages: story }
    const three = await client.chat.completions.create({ ...draw, n: 3 })
    const texts = three.choices.map(({ message }) => message.content)
    assert.deepEqual(three.choices.map(({ index }) => index), [0, 1, 2])
    assert.strictEqual(new Set(texts).size, 3)
    assert.strictEqual(three.usage?.completion_tokens, 36)
    const again = await client.chat.completions.create({ ...draw, n: 2 })
    assert.deepEqual(again.choices.map(({ message }) => message.content), texts.slice(0, 2))
    const second = await client.chat.completions.create({ ...draw, seed: 8 })
    assert.strictEqual(second.choices[0]?.message.content, texts[1])
  })

  it("ends at a stop string, at a length, and says which", async () => {
    const ask = async (more: object) => {
      const { choices: [choice] } = await client.chat.completions.create({
        model: "tg-tiny",
        temperature: 0,
        messages: sum(17, 25),
        stream: false,
        ...more
      })
      return [choice?.message.content, choice?.finish_reason]
    }
    assert.deepEqual(await ask({ stop: "5 =" }), ["17 + 2", "stop"])
    assert.deepEqual(await ask({ stop: ["never", " = 4"] }), ["17 + 25", "stop"])
    assert.deepEqual(await ask({ max_tokens: 4 }), ["17 + ", "length"])
    assert.deepEqual(await ask({ max_tokens: 99, max_completion_tokens: 1 }), ["1", "length"])
  })

  it("says how likely tokens were, and what else", async () => {
    const { choices: [choice] } = await client.chat.completions.create({
      model: "tg-tiny",
      temperature: 0,
      messages: sum(17, 25),
      logprobs: true,
      top_logprobs: 3
    })
    const content = choice?.logprobs?.content ?? []
    assert.strictEqual(content.map(({ token }) => token).join(""), "17 + 25 = 42")
    for (const { logprob, token, top_logprobs } of content) {
      assert.isAtMost(logprob, 0)
      assert.strictEqual(top_logprobs.length, 3)
      assert.deepEqual([top_logprobs[0]?.token, top_logprobs[0]?.logprob], [token, logprob])
      assert.deepEqual(
        top_logprobs.map((one) => one.logprob).toSorted((a, b) => b - a),
        top_logprobs.map((one) => one.logprob)
      )
    }
  })

  it("forbids and forces tokens", async () => {
    const seven = codec.encode("7")[0]!
    const one = { model: "tg-tiny", temperature: 0, messages: sum(17, 25), max_tokens: 2 }
    const without = await client.chat.completions.create({ ...one, logit_bias: { [seven]: -100 } })
    assert.notInclude(without.choices[0]?.message.content ?? "", "7")
    const only = await client.chat.completions.create({ ...one, logit_bias: { [seven]: 100 } })
    assert.strictEqual(only.choices[0]?.message.content, "77")
  })

  it("answers in the form of a schema", async () => {
    const schema = {
      type: "object",
      properties: { sum: { type: "integer" }, ok: { type: "boolean" }, of: { enum: ["numbers", "words"] } },
      required: ["sum", "ok", "of"],
      additionalProperties: false
    }
    for (const stream of [false, true]) {
      const answer = client.chat.completions.stream({
        model: "tg-tiny",
        temperature: stream ? 1 : 0,
        seed: 3,
        messages: sum(17, 25),
        max_tokens: 200,
        response_format: { type: "json_schema", json_schema: { name: "sum", schema, strict: true } }
      })
      const said = JSON.parse((await answer.finalContent())!) as Record<string, unknown>
      assert.deepEqual(Object.keys(said), ["sum", "ok", "of"])
      assert.isTrue(Number.isInteger(said["sum"]))
      assert.isBoolean(said["ok"])
      assert.include(["numbers", "words"], said["of"])
    }
  })

  it("thinks apart from its answer, and counts it", async () => {
    const { choices: [choice], usage } = await client.chat.completions.create({
      model: "tg-tiny",
      temperature: 0,
      messages: sum(17, 25),
      reasoning_effort: "low"
    })
    assert.include(choice?.message.content ?? "", "42")
    const thought: unknown = Reflect.get(choice!.message, "reasoning_content")
    assert.isString(thought)
    assert.notInclude(String(thought), "think>")
    assert.isAbove(usage?.completion_tokens_details?.reasoning_tokens ?? 0, 3)
  })

  it("goes on where the conversation was, and says so", async () => {
    const first = [{ role: "system" as const, content: "Answer in capital letters." }, ...sum(11, 22)]
    const { choices: [choice] } = await client.chat.completions.create({
      model: "tg-tiny",
      temperature: 0,
      messages: first
    })
    const { usage } = await client.chat.completions.create({
      model: "tg-tiny",
      temperature: 0,
      messages: [...first, { role: "assistant", content: choice?.message.content ?? "" }, ...sum(1, 2)]
    })
    const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0
    assert.isAbove(cached, 20)
    assert.isBelow(cached, usage?.prompt_tokens ?? 0)
  })

  it("takes every kind of message", async () => {
    const { choices: [choice] } = await client.chat.completions.create({
      model: "tg-tiny",
      temperature: 0,
      messages: [
        { role: "developer", content: "Answer with the result only." },
        { role: "user", content: [{ type: "text", text: "What is 1 + 1?" }, { type: "text", text: "" }] },
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "a", type: "function", function: { name: "add", arguments: "{\"a\":1,\"b\":1}" } }]
        },
        { role: "tool", tool_call_id: "a", content: "2" },
        { role: "assistant", content: "2" },
        ...sum(17, 25)
      ]
    })
    assert.include(choice?.message.content ?? "", "42")
  })

  it("completes texts, several, by tokens too", async () => {
    const draw = { model: "tg-tiny", temperature: 0, max_tokens: 8 }
    const one = await client.completions.create({ ...draw, prompt: "Once upon a time", logprobs: 2, stop: "zzz" })
    assert.isAbove(one.choices[0]?.text.length ?? 0, 8)
    assert.strictEqual(one.choices[0]?.logprobs?.tokens?.length, 8)
    const ids = [...codec.encode("Once upon a time", { addSpecial: true, parseSpecial: true })]
    const both = await client.completions.create({ ...draw, prompt: [ids, ids], echo: true })
    assert.deepEqual(both.choices.map(({ text }) => text), [0, 1].map(() => `Once upon a time${one.choices[0]?.text}`))
    const pieces: Array<string> = []
    for await (
      const { choices } of await client.completions.create({ ...draw, prompt: "Once upon a time", stream: true })
    ) {
      for (const { text } of choices) pieces.push(text)
    }
    assert.strictEqual(pieces.join(""), one.choices[0]?.text)
  })

  it("throws typed errors", async () => {
    const caught = (asked: Promise<unknown>) => asked.then(() => undefined, (error: unknown) => error)
    const wrong = await caught(
      client.chat.completions.create({ model: "tg-tiny", messages: sum(1, 2), temperature: 9 })
    )
    assert.instanceOf(wrong, BadRequestError)
    assert.strictEqual(wrong instanceof APIError ? wrong.param : "", "temperature")
    assert.instanceOf(
      await caught(client.chat.completions.create({ model: "gpt-4o", messages: sum(1, 2) })),
      NotFoundError
    )
    const refused = await caught(client.embeddings.create({ model: "tg-tiny", input: "a" }))
    assert.strictEqual(refused instanceof APIError ? refused.code : "", "unsupported_endpoint")
  })

  it("ends when it is aborted, and goes on with others", async () => {
    const stream = await client.chat.completions.create({
      model: "tg-tiny",
      temperature: 1,
      messages: story,
      stream: true,
      max_tokens: 900
    })
    let chunks = 0
    for await (const _ of stream) if (++chunks === 5) stream.controller.abort()
    const counts = Effect.flatMap(FairQueue, (queue) => queue.counts)
    for (let i = 0; i < 6000 && (await server.runtime.runPromise(counts)).running > 0; i++) {
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    assert.deepEqual(await server.runtime.runPromise(counts), { running: 0, waiting: 0 })
    const generated = await server.runtime.runPromise(Metric.value(Metrics.generatedTokens))
    await new Promise((resolve) => setTimeout(resolve, 100))
    assert.deepEqual(await server.runtime.runPromise(Metric.value(Metrics.generatedTokens)), generated)
    const answer = await client.chat.completions.create({ model: "tg-tiny", temperature: 0, messages: sum(20, 22) })
    assert.strictEqual(answer.choices[0]?.message.content, "20 + 22 = 42")
  })
})
