import { assert, describe, it } from "@effect/vitest"
import { Segment } from "@tg/tokenizer"
import { Schema } from "effect"
import { Reply, ReplyStyle, type Tool } from "../src/index.ts"
import { models, type Name, tokensOf } from "./support/models.ts"

const weather: Tool.Tool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Today's weather",
    parameters: {
      type: "object",
      properties: {
        city: { type: "string" },
        days: { type: "integer" },
        where: { $ref: "#/$defs/place" },
        note: { anyOf: [{ type: "string" }, { type: "null" }] },
        free: {}
      },
      $defs: { place: { type: "object" } }
    }
  }
}
const clock: Tool.Tool = { type: "function", function: { name: "clock" } }

/** Segments from a text in which special tokens stand between ⟦ and ⟧. */
const segmentsOf = (text: string): ReadonlyArray<Segment.Segment> =>
  text.split(/⟦(.*?)⟧/u).flatMap((part, i) =>
    part === "" ? [] : [i % 2 === 1 ? Segment.special(part) : Segment.text(part)]
  )

interface Told {
  readonly tools?: ReadonlyArray<Tool.Tool>
  readonly thinkingOpen?: boolean
}

const tools = [weather, clock]

const read = (
  name: Name,
  tokens: ReadonlyArray<Reply.TokenText>,
  { thinkingOpen = false, tools: given = tools }: Told = {}
) => {
  const reply = Reply.make(models[name].style, { toolsGiven: given, thinkingOpen })
  return [...tokens.flatMap((token) => reply.push(token)), ...reply.end()]
}

/** Parts with their texts joined. */
const joined = (parts: ReadonlyArray<Reply.Part>): ReadonlyArray<Reply.Part> => {
  const all: Array<Reply.Part> = []
  for (const part of parts) {
    const last = all.at(-1)
    if (last !== undefined && "text" in last && "text" in part && last.type === part.type) {
      all[all.length - 1] = { ...last, text: last.text + part.text }
    } else all.push(part)
  }
  return all
}

/** `[reasoning] text call{..}` in one line for each part. */
const shown = (parts: ReadonlyArray<Reply.Part>): ReadonlyArray<string> =>
  joined(parts).map((part) => {
    switch (part.type) {
      case "tool-start":
        return `${part.index}: ${part.name}`
      case "tool-end":
        return `${part.index}: ${part.complete ? "complete" : "cut"}`
      default:
        return `${part.type}: ${part.text}`
    }
  })

const parse = (name: Name, text: string, told?: Told) => {
  const tokens = tokensOf(models[name].codec, segmentsOf(text))
  return shown(read(name, tokens, told))
}

describe("the style of a model", () => {
  it.each(
    [
      ["glm", "pairs", "template", true],
      ["youtu", "json", "template", true],
      ["deepseekV2", "json", "convention", false],
      ["deepseekV3", "function", "template", false],
      ["deepseekV31", "function", "template", false],
      ["letters", "pairs", "template", true],
      ["tiny", "pairs", "vocabulary", true]
    ] as const
  )("%s", (name, form, from, thinks) => {
    const { calls, callsFrom, thinking } = models[name].style
    assert.deepStrictEqual([calls.form, callsFrom, thinking !== undefined], [form, from, thinks])
  })

  it("knows tags by their ids where the vocabulary has them", () => {
    assert.isTrue(ReplyStyle.tagsOf(models.glm.style).every(({ id }) => id !== undefined))
    assert.isTrue(ReplyStyle.tagsOf(models.letters.style).every(({ id }) => id === undefined))
  })

  it.each(
    [
      ["glm", undefined, true],
      ["glm", false, false],
      ["letters", undefined, true],
      ["youtu", undefined, false],
      ["youtu", false, false],
      ["tiny", true, true],
      ["tiny", false, false],
      ["deepseekV2", true, false]
    ] as const
  )("%s, asked to think: %s, opens the thinking section: %s", (name, enable_thinking, open) => {
    const { style, template } = models[name]
    const variables = enable_thinking === undefined ? {} : { enable_thinking }
    const prompt = template.render({ messages: [{ role: "user", content: "<think>" }], variables }, new Date(0))
    assert.isTrue(prompt._tag === "Success" && ReplyStyle.isThinkingOpen(style, prompt.success) === open)
  })
})

describe("thinking", () => {
  it("ends at its tag, and the white space around it is nobody's", () => {
    assert.deepStrictEqual(parse("glm", "Let me see.\n⟦</think>⟧\n\nIt is 4.\n", { thinkingOpen: true }), [
      "reasoning: Let me see.",
      "text: It is 4.\n"
    ])
    assert.deepStrictEqual(parse("youtu", "⟦<think>⟧\nHm.\n\nYes\n⟦</think>⟧\n\nGood", {}), [
      "reasoning: Hm.\n\nYes",
      "text: Good"
    ])
    assert.deepStrictEqual(parse("letters", "Hm\n</think>\nGood", { thinkingOpen: true }), [
      "reasoning: Hm",
      "text: Good"
    ])
    assert.deepStrictEqual(parse("letters", " <think>Hm</think>Good <think>", {}), [
      "reasoning: Hm",
      "text: Good <think>"
    ])
  })

  it("may be empty, or not end", () => {
    assert.deepStrictEqual(parse("glm", "⟦</think>⟧Good", { thinkingOpen: true }), ["text: Good"])
    assert.deepStrictEqual(parse("glm", "Hm <tool_call>", { thinkingOpen: true }), ["reasoning: Hm <tool_call>"])
    assert.deepStrictEqual(parse("letters", "Hm </thi", { thinkingOpen: true }), ["reasoning: Hm </thi"])
  })

  it("tags that are spelled with other tokens are text where the vocabulary has the tag", () => {
    assert.deepStrictEqual(parse("glm", "a</think>b⟦</think>⟧c<think>d", { thinkingOpen: true }), [
      "reasoning: a</think>b",
      "text: c<think>d"
    ])
  })

  it("is text for a model that knows none", () => {
    assert.deepStrictEqual(parse("deepseekV2", " <think>a</think>"), ["text:  <think>a</think>"])
  })
})

/** The same call as each model may write it. */
const calls = [
  [
    "glm",
    "⟦<tool_call>⟧get_weather⟦<arg_key>⟧city⟦</arg_key>⟧⟦<arg_value>⟧Paris⟦</arg_value>⟧⟦<arg_key>⟧days⟦</arg_key>⟧⟦<arg_value>⟧2⟦</arg_value>⟧⟦</tool_call>⟧"
  ],
  [
    "tiny",
    "⟦<tool_call>⟧get_weather\n⟦<arg_key>⟧city⟦</arg_key>⟧\n⟦<arg_value>⟧Paris⟦</arg_value>⟧\n⟦<arg_key>⟧days⟦</arg_key>⟧\n⟦<arg_value>⟧ 2 ⟦</arg_value>⟧\n⟦</tool_call>⟧"
  ],
  [
    "letters",
    "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call>"
  ],
  [
    "youtu",
    "⟦<tool_call>⟧\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 2}}\n⟦</tool_call>⟧"
  ],
  ["youtu", "⟦<tool_call>⟧{\"arguments\":{\"city\": \"Paris\", \"days\": 2},\"name\":\"get_weather\"}⟦</tool_call>⟧"],
  [
    "youtu",
    "⟦<tool_call>⟧{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Paris\\\", \\\"days\\\": 2}\"}⟦</tool_call>⟧"
  ],
  [
    "deepseekV2",
    "<tool_call>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\", \"days\": 2}}</tool_call>"
  ],
  [
    "deepseekV3",
    "⟦<｜tool▁calls▁begin｜>⟧⟦<｜tool▁call▁begin｜>⟧function⟦<｜tool▁sep｜>⟧get_weather\n```json\n{\"city\": \"Paris\", \"days\": 2}\n```⟦<｜tool▁call▁end｜>⟧⟦<｜tool▁calls▁end｜>⟧"
  ],
  [
    "deepseekV31",
    "⟦<｜tool▁calls▁begin｜>⟧⟦<｜tool▁call▁begin｜>⟧get_weather⟦<｜tool▁sep｜>⟧{\"city\": \"Paris\", \"days\": 2}⟦<｜tool▁call▁end｜>⟧⟦<｜tool▁calls▁end｜>⟧"
  ]
] as const

const called = ["0: get_weather", "tool-arguments: {\"city\": \"Paris\", \"days\": 2}", "0: complete"]

describe("tool calls", () => {
  it.each(calls)("of %s, %#", (name, text) => {
    assert.deepStrictEqual(parse(name, text), called)
    assert.deepStrictEqual(parse(name, `Wait.\n\n${text}`), ["text: Wait.", ...called])
    assert.deepStrictEqual(parse(name, `${text}\n${text}\n`), [
      ...called,
      ...called.map((line) => line.replace(/^0/, "1"))
    ])
  })

  it("are text where no tools were given", () => {
    const text = "⟦<tool_call>⟧{\"name\": \"f\", \"arguments\": {}}⟦</tool_call>⟧"
    assert.deepStrictEqual(parse("youtu", text, { tools: [] }), [`text: ${text.replace(/[⟦⟧]/gu, "")}`])
  })

  it("without arguments have an empty object", () => {
    const lines = ["0: clock", "tool-arguments: {}", "0: complete"]
    assert.deepStrictEqual(parse("glm", "⟦<tool_call>⟧clock⟦</tool_call>⟧"), lines)
    assert.deepStrictEqual(parse("youtu", "⟦<tool_call>⟧{\"name\": \"clock\"}⟦</tool_call>⟧"), lines)
  })

  it("have values of the types that the tool's schema says", () => {
    const pair = (key: string, value: string) => `⟦<arg_key>⟧${key}⟦</arg_key>⟧⟦<arg_value>⟧${value}⟦</arg_value>⟧`
    const values = [
      ["city", "12"],
      ["days", "12"],
      ["where", "{\"at\": [1, 2]}"],
      ["note", "null"],
      ["free", "true"],
      ["days", "many"],
      ["city", "a \"b\"\n\\ é 😀 </arg_value>"]
    ] as const
    const text = `⟦<tool_call>⟧get_weather${values.map(([key, value]) => pair(key, value)).join("")}⟦</tool_call>⟧`
    const [, json] = parse("glm", text)
    assert.strictEqual(
      json,
      "tool-arguments: {\"city\": \"12\", \"days\": 12, \"where\": {\"at\": [1, 2]}, \"note\": null, \"free\": true, " +
        "\"days\": \"many\", \"city\": \"a \\\"b\\\"\\n\\\\ é 😀 </arg_value>\"}"
    )
  })

  it("may hold the letters of tags in their strings", () => {
    const json = "{\"city\": \"</tool_call> \\\" }\"}"
    const text = `<tool_call>{"name": "get_weather", "arguments": ${json}}</tool_call>.`
    assert.deepStrictEqual(parse("deepseekV2", text), [
      "0: get_weather",
      `tool-arguments: ${json}`,
      "0: complete",
      "text: ."
    ])
  })

  it("that are cut say so", () => {
    const start = "⟦<tool_call>⟧get_weather⟦<arg_key>⟧city⟦</arg_key>⟧⟦<arg_value>⟧Par"
    assert.deepStrictEqual(parse("glm", start), ["0: get_weather", "tool-arguments: {\"city\": \"Par", "0: cut"])
    assert.deepStrictEqual(parse("youtu", "⟦<tool_call>⟧{\"name\": \"clock\", \"arguments\": {\"a"), [
      "0: clock",
      "tool-arguments: {\"a",
      "0: cut"
    ])
    assert.deepStrictEqual(parse("glm", "⟦<tool_call>⟧get_wea"), ["text: <tool_call>get_wea"])
  })

  it("with broken arguments say so", () => {
    assert.deepStrictEqual(parse("youtu", "⟦<tool_call>⟧{\"name\": \"clock\", \"arguments\": {a}}⟦</tool_call>⟧"), [
      "0: clock",
      "tool-arguments: {a}",
      "0: cut"
    ])
  })

  it("that only lack their closing tag are complete", () => {
    assert.deepStrictEqual(parse("youtu", "⟦<tool_call>⟧{\"name\": \"clock\", \"arguments\": {}}"), [
      "0: clock",
      "tool-arguments: {}",
      "0: complete"
    ])
    assert.deepStrictEqual(
      parse("glm", "⟦<tool_call>⟧get_weather⟦<arg_key>⟧days⟦</arg_key>⟧⟦<arg_value>⟧2⟦</arg_value>⟧"),
      ["0: get_weather", "tool-arguments: {\"days\": 2}", "0: complete"]
    )
  })

  it("that are none are text", () => {
    assert.deepStrictEqual(parse("youtu", "a ⟦<tool_call>⟧ what? ⟦</tool_call>⟧ b"), [
      "text: a <tool_call> what? </tool_call> b"
    ])
    assert.deepStrictEqual(parse("glm", "⟦<tool_call>⟧ ⟦</tool_call>⟧"), ["text: <tool_call> </tool_call>"])
  })

  it("come behind thinking", () => {
    assert.deepStrictEqual(
      parse("glm", "Which? ⟦<tool_call>⟧\n⟦</think>⟧\n⟦<tool_call>⟧clock⟦</tool_call>⟧\nDone", { thinkingOpen: true }),
      ["reasoning: Which? <tool_call>", "0: clock", "tool-arguments: {}", "0: complete", "text: Done"]
    )
  })

  it("stream their arguments", () => {
    const tokens = tokensOf(
      models.youtu.codec,
      segmentsOf(
        "⟦<tool_call>⟧{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}⟦</tool_call>⟧"
      )
    )
    const reply = Reply.make(models.youtu.style, { toolsGiven: tools, thinkingOpen: false })
    const deltas = tokens.map((token) => reply.push(token).filter(({ type }) => type === "tool-arguments").length)
    assert.isAbove(deltas.filter((n) => n > 0).length, 3)
  })
})

const fragments = [
  "Hello",
  " ",
  "\n\n",
  "é😀",
  "{",
  "}",
  "\"",
  "\\",
  ",",
  ":",
  "<",
  "</",
  "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a}\"}}",
  "{\"name\": \"clock\"",
  "get_weather",
  "function",
  "city",
  "\n```json\n",
  "12"
] as const

/** Pieces of a reply: a tag as a token, a tag as letters, or some text. */
const pieces = (name: Name) => {
  const tags = ReplyStyle.tagsOf(models[name].style)
  const special = tags.filter(({ id }) => id !== undefined).map(({ text }) => Segment.special(text))
  const letters = tags.map(({ text }) => Segment.text(text))
  const some = [...special, ...special, ...letters, ...fragments.map(Segment.text)]
  const written = some.map(({ text, type }) => type === "special" ? `⟦${text}⟧` : text)
  return Schema.Array(Schema.Literals([...written, ...calls.flatMap((call) => call[0] === name ? [call[1]] : [])]))
}

const cuts = Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 12 })))

/** The same text in other tokens: cut into pieces of these lengths, each encoded alone. */
const split = (segments: ReadonlyArray<Segment.Segment>, lengths: ReadonlyArray<number>) => {
  let n = 0
  return segments.flatMap((segment) => {
    if (segment.type === "special") return [segment]
    const characters = Array.from(segment.text)
    const parts: Array<Segment.Segment> = []
    while (characters.length > 0) {
      parts.push(Segment.text(characters.splice(0, 1 + (lengths[n++ % Math.max(1, lengths.length)] ?? 0)).join("")))
    }
    return parts
  })
}

/** The same tokens with texts that come later, as if they had been held back; the last token brings the rest. */
const delayed = (tokens: ReadonlyArray<Reply.TokenText>, lengths: ReadonlyArray<number>) => {
  let waiting = ""
  return tokens.map(({ id, text }, i) => {
    waiting += text
    const count = i === tokens.length - 1 ? waiting.length : Math.max(0, waiting.length - (lengths[i] ?? 0))
    const said = waiting.slice(0, count)
    waiting = waiting.slice(count)
    return { id, text: said }
  })
}

const argumentsOf = (parts: ReadonlyArray<Reply.Part>, index: number): string =>
  parts.flatMap((part) => part.type === "tool-arguments" && part.index === index ? [part.text] : []).join("")

describe("however a reply is split, its parts are the same", () => {
  for (const name of Object.keys(models) as ReadonlyArray<Name>) {
    const given = { texts: pieces(name), lengths: cuts, thinkingOpen: Schema.Boolean }
    it.prop(name, given, ({ lengths, texts, thinkingOpen }) => {
      const { codec, style } = models[name]
      const told = { thinkingOpen: thinkingOpen && style.thinking !== undefined }
      const segments = segmentsOf(texts.join(""))
      const whole = tokensOf(codec, segments)
      const expected = joined(read(name, whole, told))
      const tokens = tokensOf(codec, split(segments, lengths))
      assert.deepStrictEqual(joined(read(name, tokens, told)), expected)
      assert.deepStrictEqual(joined(read(name, delayed(tokens, lengths), told)), expected)
      for (const part of expected) {
        if (part.type === "tool-end" && part.complete) assert.isObject(JSON.parse(argumentsOf(expected, part.index)))
      }
    })
  }
})
