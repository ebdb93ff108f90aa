import OpenAI from "openai"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type Running, start } from "./support/server.ts"

let server: Running
let client: OpenAI
beforeAll(async () => {
  server = await start()
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 })
})
afterAll(() => server.close())

const sum = (a: number, b: number) => [{ role: "user" as const, content: `What is ${a} + ${b}?` }]

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
})
