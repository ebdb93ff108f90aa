import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import { ChatOpenAI } from "@langchain/openai"
import { generateText, jsonSchema, tool } from "ai"
import OpenAI, { APIError } from "openai"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type Running, start } from "./support/server.ts"

let server: Running
beforeAll(async () => {
  server = await start()
})
afterAll(() => server.close())

const parameters = {
  type: "object" as const,
  properties: { city: { type: "string", maxLength: 12 }, unit: { enum: ["c", "f"] } },
  required: ["city", "unit"],
  additionalProperties: false
}
const weather = { type: "function" as const, function: { name: "get_weather", description: "The weather", parameters } }
const messages = [{ role: "user" as const, content: "What is the weather in Lima?" }]

/** tg-tiny was never told of tools: what it says is senseless, and right in form. */
const assertArguments = (value: unknown): void => {
  const { city, unit, ...rest } = value as { readonly city: string; readonly unit: string }
  assert.isAtMost(city.length, 12)
  assert.include(["c", "f"], unit)
  assert.deepEqual(rest, {})
}

describe("tools", () => {
  const client = () => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 })

  it("are called in form where a call is asked for, streaming and not", async () => {
    for (const tool_choice of ["required", { type: "function", function: { name: "get_weather" } }] as const) {
      const asked = { model: "tg-tiny", temperature: 0, max_tokens: 200, messages, tools: [weather], tool_choice }
      const whole = await client().chat.completions.create({ ...asked, parallel_tool_calls: false })
      const [choice] = whole.choices
      const [call] = choice!.message.tool_calls!
      assert.strictEqual(choice?.finish_reason, "tool_calls")
      assert.strictEqual(choice?.message.tool_calls?.length, 1)
      assert.isTrue(call?.type === "function" && call.function.name === "get_weather")
      const given = call?.type === "function" ? call.function.arguments : ""
      assertArguments(JSON.parse(given))
      const streamed = await client().chat.completions.stream(asked).finalMessage()
      const [again] = streamed.tool_calls!
      assert.strictEqual(again?.type === "function" ? again.function.arguments : "", given)
    }
  })

  it("are left alone where the model answers, and where they are not wanted", async () => {
    for (const tool_choice of ["auto", "none"] as const) {
      const { choices: [choice] } = await client().chat.completions.create({
        model: "tg-tiny",
        temperature: 0,
        max_tokens: 100,
        messages: [{ role: "user", content: "What is 17 + 25?" }],
        tools: [weather],
        tool_choice
      })
      assert.include(choice?.message.content ?? "", "42")
      assert.strictEqual(choice?.finish_reason, "stop")
    }
  })

  it("whose schema cannot be held are refused by their place", async () => {
    const odd = { ...weather, function: { ...weather.function, parameters: { ...parameters, dependentRequired: 1 } } }
    const error = await client().chat.completions.create({ model: "tg-tiny", messages, tools: [odd] }).catch((e) => e)
    assert.isTrue(error instanceof APIError && error.status === 400)
    assert.strictEqual(error.param, "tools[0].function.parameters")
  })

  it("are called through ai", async () => {
    const provider = createOpenAICompatible({ name: "tg", baseURL: `${server.url}/v1` })
    const { toolCalls } = await generateText({
      model: provider.chatModel("tg-tiny"),
      temperature: 0,
      maxOutputTokens: 200,
      prompt: "What is the weather in Lima?",
      tools: { get_weather: tool({ description: "The weather", inputSchema: jsonSchema(parameters) }) },
      toolChoice: "required"
    })
    assert.isAbove(toolCalls.length, 0)
    assert.strictEqual(toolCalls[0]?.toolName, "get_weather")
    assertArguments(toolCalls[0]?.input)
  })

  it("are called through @langchain/openai", async () => {
    const model = new ChatOpenAI({
      model: "tg-tiny",
      temperature: 0,
      maxTokens: 200,
      apiKey: "none",
      maxRetries: 0,
      configuration: { baseURL: `${server.url}/v1` }
    })
    const answer = await model.bindTools([weather], { tool_choice: "required" }).invoke("What is the weather in Lima?")
    assert.strictEqual(answer.tool_calls?.[0]?.name, "get_weather")
    assertArguments(answer.tool_calls?.[0]?.args)
  })
})
