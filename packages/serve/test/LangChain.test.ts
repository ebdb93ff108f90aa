import { ChatOpenAI } from "@langchain/openai"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type Running, start } from "./support/server.ts"

let server: Running
beforeAll(async () => {
  server = await start()
})
afterAll(() => server.close())

const model = () =>
  new ChatOpenAI({
    model: "tg-tiny",
    temperature: 0,
    apiKey: "none",
    maxRetries: 0,
    configuration: { baseURL: `${server.url}/v1` }
  })

describe("@langchain/openai", () => {
  it("asks", async () => {
    const answer = await model().invoke("What is 17 + 25?")
    assert.strictEqual(answer.content, "17 + 25 = 42")
    assert.deepInclude(answer.response_metadata["tokenUsage"], { promptTokens: 15, completionTokens: 10 })
  })

  it("streams", async () => {
    const pieces: Array<string> = []
    for await (const chunk of await model().stream("What is 30 + 12?")) pieces.push(String(chunk.content))
    assert.strictEqual(pieces.join(""), "30 + 12 = 42")
    assert.isAbove(pieces.length, 5)
  })
})
