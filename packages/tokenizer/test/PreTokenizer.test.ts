import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { known, split } from "../src/PreTokenizer.ts"

const pieces = (name: string, input: string) => split(input, known.get(name)!).join("|")

describe("split", () => {
  it.each([
    ["glm4", "I'LL go 12345 times!\n\n  ok", "I|'LL| go| |123|45| times|!\n\n| | ok"],
    ["qwen2", "a 12", "a| |1|2"],
    ["gpt-2", "I'LL don't 12345  x", "I|'|LL| don|'t| 12345| | x"],
    ["deepseek-llm", "Hello  wörld 42\n!？ 中文ab  ", "Hello| | w|ö|rld| |42|\n|!？| |中文|ab|  "],
    ["deepseek-v3", "x=1234 .foo 中文ab né", "x|=|123|4| .|foo| |中文|ab| né"],
    ["youtu", "helloWorld don't 12 中文。a/b/\n", "hello|World| don't| |1|2| |中文|。|a|/b|/\n"],
    ["glm4", "a\u0085\u0085b\ufeff c", "a|\u0085|\u0085b|\ufeff| c"]
  ])("%s cuts %j", (name, input, expected) => assert.strictEqual(pieces(name, input), expected))

  it("takes U+0085 for white space and U+FEFF for a symbol", () => {
    assert.strictEqual(pieces("gpt-2", "\u0085\u0085a"), "\u0085|\u0085|a")
    assert.strictEqual(pieces("gpt-2", "\ufeff\ufeff a"), "\ufeff\ufeff| a")
  })

  it.prop("drops nothing", { input: Schema.String }, ({ input }) => {
    for (const pre of known.values()) {
      const parts = split(input.toWellFormed(), pre)
      assert.strictEqual(parts.join(""), input.toWellFormed())
      assert.isTrue(parts.every((part) => part !== ""))
    }
  })
})

describe("a run of millions of characters", () => {
  const codes = ["x", " ", ".", "\n", "中", "é", "7", "😀"]
  it.each([...known.keys()])("of one kind is cut: %s", (name) => {
    for (const letter of codes) {
      const input = "中 " + letter.repeat(5_000_000)
      let length = 0
      for (const piece of split(input, known.get(name)!)) length += piece.length
      assert.strictEqual(length, input.length)
    }
  })
})
