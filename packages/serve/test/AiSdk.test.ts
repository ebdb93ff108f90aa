import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import { generateText, streamText } from "ai"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type Running, start } from "./support/server.ts"

let server: Running
beforeAll(async () => {
  server = await start()
})
afterAll(() => server.close())

const model = () =>
  createOpenAICompatible({ name: "tg", baseURL: `${server.url}/v1`, includeUsage: true }).chatModel("tg-tiny")

describe("ai", () => {
  it("generates text", async () => {
    const { finishReason, text, usage } = await generateText({
      model: model(),
      temperature: 0,
      prompt: "What is 17 + 25?"
    })
    assert.strictEqual(text, "17 + 25 = 42")
    assert.strictEqual(finishReason, "stop")
    assert.strictEqual(usage.inputTokens, 15)
  })

  it("streams text", async () => {
    const pieces: Array<string> = []
    const { textStream, usage } = streamText({ model: model(), temperature: 0, prompt: "What is 30 + 12?" })
    for await (const piece of textStream) pieces.push(piece)
    assert.strictEqual(pieces.join(""), "30 + 12 = 42")
    assert.isAbove(pieces.length, 5)
    assert.strictEqual((await usage).outputTokens, 10)
  })

  it("reads reasoning apart from the answer", async () => {
    const { reasoningText, text } = await generateText({
      model: model(),
      temperature: 0,
      prompt: "What is 17 + 25?",
      providerOptions: { tg: { reasoningEffort: "low" } }
    })
    assert.include(text, "42")
    assert.isAbove(reasoningText?.length ?? 0, 3)
    assert.notInclude(text, "</think>")
  })
})
