import { Matcher, TokenTable } from "@tg/constrain"
import { assert, describe, it } from "@effect/vitest"
import { Decoder } from "@tg/tokenizer"
import { Result } from "effect"
import { Reply, type Tool, ToolGrammar } from "../src/index.ts"
import { models, type Name } from "./support/models.ts"

const book: Tool.Tool = {
  type: "function",
  function: {
    name: "book",
    parameters: {
      type: "object",
      properties: {
        city: { type: "string", description: "where to" },
        class: { enum: ["first", "second"] },
        days: { type: "integer", enum: [1, 2, 3] },
        seats: { type: "array", items: { $ref: "#/$defs/seat" }, minItems: 1, maxItems: 3 },
        note: { type: ["string", "null"] }
      },
      required: ["city", "days"],
      additionalProperties: false,
      $defs: {
        seat: {
          type: "object",
          properties: { row: { type: "integer" } },
          required: ["row"],
          additionalProperties: false
        }
      }
    }
  }
}
const clock: Tool.Tool = { type: "function", function: { name: "clock" } }
const tools = [book, clock]

/** Whether the arguments of a tool are as its schema says. */
const isValid = (name: string, args: Readonly<Record<string, unknown>>): boolean => {
  const { city, class: class_, days, note, seats, ...others } = args
  if (Object.keys(others).length > 0) return false
  if (name === "clock") return Object.keys(args).length === 0
  const isRow = (seat: unknown): boolean => Number.isInteger((seat as { readonly row: unknown }).row)
  return typeof city === "string" && Number.isInteger(days) && Number(days) >= 1 && Number(days) <= 3 &&
    (class_ === undefined || class_ === "first" || class_ === "second") &&
    (note === undefined || note === null || typeof note === "string") &&
    (seats === undefined || (Array.isArray(seats) && seats.length >= 1 && seats.length <= 3 && seats.every(isRow)))
}

const tables = new Map<Name, TokenTable.TokenTable>()

const matcherOf = (name: Name, choice: Tool.Choice, options: Partial<ToolGrammar.Options> = {}) => {
  const { codec, style } = models[name]
  const table = tables.get(name) ?? TokenTable.make(ToolGrammar.vocabularyOf(codec))
  tables.set(name, table)
  const grammar = ToolGrammar.toolGrammar(style, tools, choice, { thinkingOpen: false, ...options })
  return Matcher.make(Result.getOrThrow(grammar), table)
}

/** Draws a reply of random tokens that the mask allows; special ones and short ones are liked, so that it ends. */
const draw = (name: Name, matcher: Matcher.Matcher, seed: number, length = 2000) => {
  const { codec } = models[name]
  const specials = new Set(codec.specials.values())
  const closers = new Set(["\"", "}", "]", "</", "<", "1"].flatMap((text) => codec.encode(text)))
  let state = seed * 7919 + 1
  const random = (below: number): number => (state = state * 48271 % 2147483647) % below
  const ids: Array<number> = []
  while (ids.length < length) {
    const mask = matcher.mask()
    const allowed = codec.vocabulary.tokens.flatMap((_, id) => (mask[id >>> 5]! >>> (id & 31)) & 1 ? [id] : [])
    assert.isNotEmpty(allowed, `nothing may follow ${codec.decode(ids)}`)
    const special = allowed.filter((id) => codec.vocabulary.eog.has(id) || specials.has(id))
    const closing = allowed.filter((id) => closers.has(id))
    const liked = special.length > 0 && random(3) === 0
      ? special
      : closing.length > 0 && random(2) === 0
      ? closing
      : allowed
    const id = liked[random(liked.length)]!
    matcher.accept(id)
    if (codec.vocabulary.eog.has(id)) return { ids, isEnded: true }
    ids.push(id)
  }
  return { ids, isEnded: false }
}

const read = (name: Name, ids: ReadonlyArray<number>, thinkingOpen = false) => {
  const { codec, style } = models[name]
  const reply = Reply.make(style, { toolsGiven: tools, thinkingOpen })
  const decoder = Decoder.make(codec)
  const parts = ids.flatMap((id) => reply.push({ id, text: decoder.push(id) }))
  const all = [...parts, ...reply.end()]
  const calls = all.flatMap((part) => part.type === "tool-start" ? [{ index: part.index, name: part.name }] : [])
  return {
    parts: all,
    calls: calls.map(({ index, name }) => ({
      name,
      json: all.map((part) => part.type === "tool-arguments" && part.index === index ? part.text : "").join(""),
      complete: all.some((part) => part.type === "tool-end" && part.index === index && part.complete)
    }))
  }
}

const withTokens = ["glm", "youtu", "deepseekV3", "deepseekV31", "tiny"] as const

describe("a reply that has to call a tool", () => {
  it.each(withTokens)("calls one, with arguments that its schema allows: %s", (name) => {
    let calls = 0
    for (let seed = 1; seed <= 8; seed++) {
      const { ids, isEnded } = draw(name, matcherOf(name, "required", { maxCalls: 3 }), seed)
      if (!isEnded) continue
      const reply = read(name, ids)
      assert.isNotEmpty(reply.calls)
      for (const call of reply.calls) {
        calls++
        assert.isTrue(call.complete, call.json)
        assert.isTrue(isValid(call.name, JSON.parse(call.json)), `${call.name} ${call.json}`)
      }
      assert.isTrue(reply.parts.every(({ type }) => type.startsWith("tool") || type === "reasoning"))
    }
    assert.isAbove(calls, 5)
  })

  it.each(withTokens)("calls the one that was chosen, once: %s", (name) => {
    const { ids, isEnded } = draw(name, matcherOf(name, { name: "clock" }), 5)
    assert.isTrue(isEnded)
    assert.deepStrictEqual(read(name, ids).calls, [{ name: "clock", json: "{}", complete: true }])
  })

  it("thinks first, if the prompt has begun that", () => {
    const { ids } = draw("glm", matcherOf("glm", { name: "clock" }, { thinkingOpen: true }), 3)
    const { calls, parts } = read("glm", ids, true)
    assert.strictEqual(calls.length, 1)
    assert.isTrue(parts.every(({ type }) => type === "reasoning" || type.startsWith("tool")))
  })
})

/** The calls as each form writes them, allowed and not. */
describe("a reply may be", () => {
  const takes = (name: Name, choice: Tool.Choice, text: string): boolean => {
    const { codec } = models[name]
    const matcher = matcherOf(name, choice)
    for (const id of codec.encode(text, { parseSpecial: true })) {
      const mask = matcher.mask()
      if (((mask[id >>> 5]! >>> (id & 31)) & 1) === 0) return false
      matcher.accept(id)
    }
    return matcher.isComplete()
  }
  const pair = (key: string, value: string) => `<arg_key>${key}</arg_key><arg_value>${value}</arg_value>`
  const glm = (pairs: string) => `<tool_call>book${pairs}</tool_call>`
  const json = (args: string) => `<tool_call>{"name": "book", "arguments": ${args}}</tool_call>`

  it.each(
    [
      ["glm", "required", glm(pair("city", "Paris") + pair("days", "3")), true],
      ["glm", "required", glm(pair("city", "Paris") + pair("class", "first") + pair("days", "3")), true],
      ["glm", "required", glm(pair("city", "Paris") + pair("class", "third") + pair("days", "3")), false],
      ["glm", "required", glm(pair("city", "Paris") + pair("days", "21")), false],
      ["glm", "required", glm(pair("city", "Paris")), false],
      ["glm", "required", glm(pair("town", "Paris")), false],
      [
        "glm",
        "required",
        "<think>Hm</think>" + glm(pair("city", "") + pair("days", "3") + pair("seats", "[{\"row\":4}]")),
        true
      ],
      ["glm", "required", "Hm", false],
      ["glm", "auto", "Hm", true],
      ["glm", "auto", `Hm.\n${glm(pair("city", "Paris") + pair("days", "3"))}`, true],
      ["glm", "auto", `Hm.\n${glm(pair("city", "Paris"))}`, false],
      ["glm", "none", glm(pair("city", "Paris") + pair("days", "3")), false],
      ["youtu", "required", json("{\"city\":\"Paris\",\"days\":3}"), true],
      [
        "youtu",
        "required",
        `${json("{\"city\":\"Paris\",\"days\":3}")}\n<tool_call>{"name": "clock", "arguments": {}}</tool_call>`,
        true
      ],
      ["youtu", "required", json("{\"city\":3,\"days\":3}"), false],
      ["deepseekV2", "auto", `Hm. ${json("{\"city\":\"Paris\",\"days\":3}")}`, true],
      ["deepseekV2", "auto", `Hm. ${json("{\"city\":\"Paris\"}")}`, false],
      ["deepseekV2", "auto", "Hm. <tool_cal", true],
      ["letters", "required", glm(pair("city", "Paris") + pair("days", "3")), true],
      ["letters", "auto", glm(pair("city", "Paris") + pair("days", "x")), false]
    ] as const
  )("%s, %s: %s is allowed: %s", (name, choice, text, allowed) => {
    assert.strictEqual(takes(name, choice, text), allowed)
  })
})

describe("a tool is refused", () => {
  const tool = (parameters: Readonly<Record<string, unknown>>): Tool.Tool => ({
    type: "function",
    function: { name: "f", parameters }
  })
  const refusal = (name: Name, given: ReadonlyArray<Tool.Tool>, choice: Tool.Choice = "auto") =>
    Result.getOrThrow(Result.flip(ToolGrammar.toolGrammar(models[name].style, given, choice, { thinkingOpen: false })))

  it.each(
    [
      ["glm", { type: "object", minProperties: 2 }, "tool f: parameters #: minProperties"],
      ["glm", { properties: { a: { type: "string", format: "date" } } }, "tool f: parameters #/properties/a: format"],
      [
        "glm",
        { properties: { a: { anyOf: [{ type: "string" }, { type: "integer" }] } } },
        "tool f: parameters #/properties/a: type"
      ],
      [
        "glm",
        { properties: { a: { type: "array", uniqueItems: true } } },
        "tool f: parameters #/properties/a: "
      ],
      ["glm", { required: ["b"] }, "tool f: parameters #/required: required"],
      [
        "youtu",
        { properties: { a: { type: "array", uniqueItems: true } } },
        "tool f: parameters #/properties/a: "
      ]
    ] as const
  )("by %s whose schema asks for more than can be held to: %j", (name, parameters, message) => {
    assert.include(refusal(name, [tool(parameters)]).message, message)
  })

  it("that is chosen and not there", () => {
    assert.strictEqual(
      refusal("glm", tools, { name: "fly" }).message,
      "the tool \"fly\" has to be called, and the tools are book, clock"
    )
    assert.include(refusal("glm", [], "required").message, "no tools were given")
  })
})
