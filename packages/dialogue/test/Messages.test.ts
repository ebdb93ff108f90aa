import { assert, describe, it } from "@effect/vitest"
import { Segment } from "@tg/tokenizer"
import { Result } from "effect"
import { Messages, Reply, type Tool } from "../src/index.ts"
import { models, type Name, tokensOf } from "./support/models.ts"

const tool: Tool.Tool = {
  type: "function",
  function: {
    name: "add",
    description: "Adds two numbers",
    parameters: {
      type: "object",
      properties: { a: { type: "integer" }, b: { type: "integer" }, note: { type: "string" } }
    }
  }
}

const messages = [
  { role: "developer", content: "Be brief." },
  { role: "user", content: [{ type: "text", text: "What is " }, { type: "text", text: "17 + 25?" }] },
  {
    role: "assistant",
    content: null,
    reasoning_content: "I need add.",
    tool_calls: [
      {
        id: "call_1",
        type: "function",
        function: { name: "add", arguments: "{\"a\": 17, \"b\": 25, \"note\": \"x\"}" }
      }
    ]
  },
  { role: "tool", tool_call_id: "call_1", content: "42" }
]

const written = (name: Name, given: Messages.Given) => {
  const { style, template } = models[name]
  const taken = Result.getOrThrow(Messages.make(template, style).write(given))
  return Result.getOrThrow(template.render({ ...taken, variables: { enable_thinking: false } }, new Date(0)))
}

describe("what a template does with tools is found by trial", () => {
  it.each(
    [
      ["glm", { tools: true, calls: { arguments: "object", emptyContent: "" }, results: true }],
      ["youtu", { tools: true, calls: { arguments: "object", emptyContent: "" }, results: true }],
      ["deepseekV2", { tools: false, calls: undefined, results: false }],
      ["deepseekV3", { tools: false, calls: { arguments: "text", emptyContent: null }, results: true }],
      ["tiny", { tools: false, calls: undefined, results: true }]
    ] as const
  )("%s", (name, traits) => {
    assert.deepStrictEqual(Messages.traitsOf(models[name].template), traits)
  })
})

describe("a conversation with a call and its result", () => {
  for (const name of Object.keys(models) as ReadonlyArray<Name>) {
    it(`is all in the prompt of ${name}`, () => {
      const { text } = written(name, { messages, tools: [tool] })
      for (const part of ["What is 17 + 25?", "Adds two numbers", "42", "add", "17", "25"]) assert.include(text, part)
    })
  }

  it("has the form of the template", () => {
    const { text } = written("glm", { messages })
    assert.strictEqual(
      text,
      "[gMASK]<sop><|system|>Be brief.<|user|>What is 17 + 25?<|assistant|><think>I need add.</think><tool_call>add" +
        "<arg_key>a</arg_key><arg_value>17</arg_value><arg_key>b</arg_key><arg_value>25</arg_value>" +
        "<arg_key>note</arg_key><arg_value>x</arg_value></tool_call><|observation|><tool_response>42</tool_response>" +
        "<|assistant|></think>"
    )
    assert.include(
      written("deepseekV3", { messages: messages.slice(1) }).text,
      "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\":17,\"b\":25,\"note\":\"x\"}\n```<｜tool▁call▁end｜>"
    )
  })

  it("is written into the texts for a template that knows of nothing", () => {
    const { text } = written("deepseekV2", { messages, tools: [tool] })
    assert.include(
      text,
      "Assistant: <tool_call>{\"name\": \"add\", \"arguments\": {\"a\":17,\"b\":25,\"note\":\"x\"}}</tool_call>"
    )
    assert.include(text, "User: <tool_response>42</tool_response>")
    assert.include(text, "Be brief.\n\nYou can call these functions:\n{\"name\":\"add\"")
  })
})

describe("a call that is written", () => {
  for (const name of Object.keys(models) as ReadonlyArray<Name>) {
    it(`is read again by ${name}`, () => {
      const { codec, style } = models[name]
      const args = { a: 17, b: 25, note: "5 </x> \"é\"\n" }
      const text = Messages.writeCall(style.calls, "add", args)
      const specials = [...codec.specials.keys()]
      const reply = Reply.make(style, { toolsGiven: [tool], thinkingOpen: false })
      const parts = [
        ...tokensOf(codec, Segment.cut(text, specials)).flatMap((token) => reply.push(token)),
        ...reply.end()
      ]
      const json = parts.map((part) => part.type === "tool-arguments" ? part.text : "").join("")
      assert.deepStrictEqual(JSON.parse(json), args)
      assert.deepStrictEqual(parts.at(0), { type: "tool-start", index: 0, name: "add" })
      assert.deepStrictEqual(parts.at(-1), { type: "tool-end", index: 0, complete: true })
    })
  }
})

describe("a conversation that cannot be", () => {
  const call = (arguments_: unknown, name: unknown = "add") => ({
    role: "assistant",
    tool_calls: [{ function: { name, arguments: arguments_ } }]
  })
  it.each(
    [
      [[3], "messages[0]: expected an object, found 3"],
      [[{ content: "a" }], "messages[0].role: expected a role, found nothing"],
      [[{ role: "user", content: 3 }], "messages[0].content: expected a text, or a list of parts, found 3"],
      [
        [{ role: "user", content: [{ type: "image_url" }] }],
        "messages[0].content[0]: expected a part of the type text, found {\"type\":\"image_url\"}"
      ],
      [[call("{")], "messages[0].tool_calls[0].function.arguments: expected a JSON object as text, found \"{\""],
      [[call("[]")], "messages[0].tool_calls[0].function.arguments: expected a JSON object as text, found \"[]\""],
      [[call("{}", 1)], "messages[0].tool_calls[0].function.name: expected a name, found 1"],
      [[{ role: "assistant", tool_calls: 1 }], "messages[0].tool_calls: expected a list of calls, found 1"]
    ] as const
  )("says where, %#", (messages, message) => {
    const { style, template } = models.glm
    const error = Result.getOrThrow(Result.flip(Messages.make(template, style).write({ messages })))
    assert.strictEqual(error._tag, "InvalidConversation")
    assert.strictEqual(error.message, message)
  })
})
