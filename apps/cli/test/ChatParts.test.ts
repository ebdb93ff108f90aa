import type { Reply } from "@tg/dialogue"
import { assert, describe, it } from "vitest"
import * as Command from "../src/chat/Command.ts"
import * as Keys from "../src/chat/Keys.ts"
import * as Shown from "../src/chat/Shown.ts"
import { dim, styleOf, visible } from "../src/chat/Style.ts"
import * as Talk from "../src/chat/Talk.ts"

describe("a line", () => {
  it.each(
    [
      ["hello", { _tag: "Say", text: "hello" }],
      ["/usr/bin is what?", { _tag: "Say", text: "/usr/bin is what?" }],
      ["//help", { _tag: "Say", text: "/help" }],
      ["/HELP ", { _tag: "Help" }],
      ["/system", { _tag: "System", text: undefined }],
      ["/system Be brief.\nVery.", { _tag: "System", text: "Be brief.\nVery." }],
      ["/save", { _tag: "Save", path: undefined, isForced: false }],
      ["/save -f a b.json", { _tag: "Save", path: "a b.json", isForced: true }],
      ["/save -file", { _tag: "Save", path: "-file", isForced: false }],
      ["/load", { _tag: "Wrong", message: "/load needs a file" }],
      ["/forget 2", { _tag: "Forget", turns: 2 }],
      ["/forget x", { _tag: "Wrong", message: "/forget takes a number of 1 or more, not x" }],
      ["/stats off", { _tag: "Stats", each: false }],
      ["/thinking fold", { _tag: "Thinking", ask: undefined, show: "fold" }],
      ["/rest", { _tag: "Wrong", message: "unknown command /rest, did you mean /reset? To say it, begin with //" }]
    ] as const
  )("%j is %j", (typed, command) => {
    assert.deepStrictEqual(Command.parse(typed), command)
  })
})

describe("keys", () => {
  it("are handed over to the end of a line", () => {
    assert.deepStrictEqual(Keys.take("one\r\ntwo\rth"), { keys: "one\r", rest: "two\rth", isLine: true })
    assert.deepStrictEqual(Keys.take("th"), { keys: "th", rest: "", isLine: false })
  })

  it("that break a line inside of it stand there as one character", () => {
    const { isLine, keys } = Keys.take("a\x1b\rb\x1b[200~c\r\nd\te\x07\x1b[201~")
    assert.isFalse(isLine)
    assert.strictEqual(Keys.toText(keys), "a\nbc\nd\te")
    assert.strictEqual(Keys.toText(Keys.toLine("x\n\ty")), "x\n\ty")
  })

  it("wait while they may be the beginning of a paste, and until it ends", () => {
    assert.deepStrictEqual(Keys.take("a\x1b[20"), { keys: "a", rest: "\x1b[20", isLine: false })
    assert.deepStrictEqual(Keys.take("\x1b[200~b\r"), { keys: "", rest: "\x1b[200~b\r", isLine: false })
    assert.deepStrictEqual(Keys.take("\x1b[A\x03"), { keys: "\x1b[A\x03", rest: "", isLine: false })
  })
})

const colored = styleOf(true, { TERM: "xterm" })

describe("what is shown", () => {
  it("does not steer a terminal, and is as it is elsewhere", () => {
    const text = "a\x1b[2J\x07\r\u009b\u202e\t\n"
    assert.strictEqual(visible(text, colored), "a\\x1b[2J\\x07\\x0d\\x9b\\u202e\t\n")
    assert.strictEqual(visible(text, styleOf(false, {})), text)
  })

  it("has no colours with NO_COLOR, on a dumb terminal, and in files", () => {
    assert.strictEqual(dim("a", colored), "\x1b[2ma\x1b[22m")
    assert.strictEqual(dim("a", styleOf(true, { NO_COLOR: "" })), "\x1b[2ma\x1b[22m")
    for (const [isTerminal, env] of [[true, { NO_COLOR: "1" }], [true, { TERM: "dumb" }], [false, {}]] as const) {
      assert.strictEqual(dim("a", styleOf(isTerminal, env)), "a")
    }
  })

  const parts: ReadonlyArray<Reply.Part> = [
    { type: "reasoning", text: "Two and " },
    { type: "reasoning", text: "two." },
    { type: "text", text: "Four" }
  ]
  it.each(
    [
      ["dim", {}, "\x1b[2mTwo and \x1b[22m\x1b[2mtwo.\x1b[22m\n\nFour\n"],
      ["dim", { NO_COLOR: "1" }, "(thinking) Two and two.\n\nFour\n"],
      [
        "fold",
        {},
        "\x1b[2mthinking ..\x1b[22m\r\x1b[K\x1b[2m(thought in 3 words; /thinking dim shows them)\x1b[22m\nFour\n"
      ],
      ["fold", { NO_COLOR: "1" }, "(thought in 3 words; /thinking dim shows them)\nFour\n"],
      ["hide", {}, "Four\n"]
    ] as const
  )("%s thinking, %j", (how, environment, written) => {
    const shown = Shown.make(styleOf(true, environment), how)
    assert.strictEqual(parts.map(shown.part).join("") + shown.end(), written)
  })
})

describe("a conversation", () => {
  it("forgets the oldest turns, with what belongs to them", () => {
    const talk = ["a", "b", "c"].reduce(
      (talk, text) => Talk.answer(Talk.say(talk, text), { content: text.toUpperCase(), reasoning: "" }),
      Talk.empty
    )
    assert.deepStrictEqual(Talk.forget(talk, 2)?.messages.map(({ content }) => content), ["c", "C"])
    assert.deepStrictEqual(Talk.forget(talk, 3)?.messages, [])
    assert.strictEqual(Talk.forget(talk, 4), undefined)
    assert.deepStrictEqual(Talk.unanswered(talk)?.messages.map(({ content }) => content), ["a", "A", "b", "B", "c"])
  })
})
