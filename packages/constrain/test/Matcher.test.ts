import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { Acceptor, ConstrainError, Grammar, JsonSchema, Matcher, Regex, TokenTable } from "../src/index.ts"

const encoder = new TextEncoder()
const words = [
  "{\"",
  "\":",
  "\",\"",
  "\"}",
  "name",
  "age",
  "1",
  "23",
  "\"age\":",
  "abc",
  "ab",
  "é",
  "\"a\":[",
  "]}",
  "],\""
]
const texts = [...Array.from({ length: 256 }, (_, i) => Uint8Array.of(i)), ...words.map((word) => encoder.encode(word))]
const [end, special] = [texts.length, texts.length + 1]
const table = TokenTable.make({ size: texts.length + 2, bytesOf: (id) => texts[id], endTokens: [end] })

const allowed = (matcher: Matcher.Matcher): ReadonlyArray<number> => {
  const mask = matcher.mask()
  return Array.from({ length: table.size }, (_, id) => id).filter((id) => (mask[id >>> 5]! >>> (id & 31)) & 1)
}

const schema = {
  type: "object",
  properties: {
    name: { type: "string", pattern: "^[a-z]+$", maxLength: 5 },
    age: { type: "integer" },
    tags: { type: "array", items: { enum: ["a", "b\n"] }, minItems: 1, maxItems: 3 },
    tree: { $ref: "#/$defs/tree" }
  },
  required: ["age"],
  additionalProperties: false,
  $defs: { tree: { type: "object", properties: { kids: { type: "array", items: { $ref: "#/$defs/tree" } } } } }
}

describe("masks", () => {
  const grammars = {
    schema: Result.getOrThrow(JsonSchema.compile(schema)),
    anything: Result.getOrThrow(JsonSchema.compile(true)),
    regex: Result.getOrThrow(Regex.compile("(?:ab|name)*\\d{2,4}é?")),
    call: Grammar.sequence(
      Grammar.until(["{\"", "age"]),
      Grammar.choice(Grammar.literal("name"), Grammar.token(special)),
      Grammar.repeat(Grammar.literal("ab"), { min: 2, max: 3 })
    )
  }

  it.each(Object.entries(grammars))("allow exactly the tokens that lead somewhere: %s", (_, grammar) => {
    let seed = 1
    const random = (below: number): number => (seed = (seed * 48271) % 2147483647) % below
    for (let run = 0; run < 12; run++) {
      const matcher = Matcher.make(grammar, table)
      for (let step = 0; step < 25 && !matcher.isFinished(); step++) {
        const ids = allowed(matcher)
        const accepted = Array.from({ length: table.size }, (_, id) => id).filter((id) =>
          Result.isSuccess(Result.try(() => matcher.clone().accept(id)))
        )
        assert.deepStrictEqual(ids, accepted)
        assert.isAbove(ids.length, 0)
        const multi = ids.filter((id) => id >= 256)
        matcher.accept(multi.length > 0 && random(3) > 0 ? multi[random(multi.length)]! : ids[random(ids.length)]!)
      }
    }
  })

  it("a token that is refused is an error that names it", () => {
    const matcher = Matcher.make(grammars.schema, table)
    assert.throws(() => matcher.accept(0x20), ConstrainError.RejectedToken)
    matcher.accept(0x7b)
    assert.throws(() => matcher.accept(end), ConstrainError.RejectedToken)
  })

  it("only an end token follows a text that is complete", () => {
    const matcher = Matcher.make(grammars.schema, table)
    for (const byte of encoder.encode("{\"age\":1}")) matcher.accept(byte)
    assert.isTrue(matcher.isFinished())
    assert.deepStrictEqual(allowed(matcher), [end])
    matcher.accept(end)
    assert.deepStrictEqual(allowed(matcher), [end])
  })
})

describe("texts", () => {
  const grammar = Result.getOrThrow(JsonSchema.compile(schema))
  it.each([
    ["{\"age\":3}", true],
    ["{\"name\":\"abcde\",\"age\":3}", true],
    ["{\"name\":\"abcdef\",\"age\":3}", false],
    ["{\"age\":3.5}", false],
    ["{\"age\":-0}", false],
    ["{\"age\":12,\"tags\":[\"a\",\"b\\n\",\"a\"]}", true],
    ["{\"age\":12,\"tags\":[]}", false],
    ["{\"age\":12,\"tags\":[\"a\",\"a\",\"a\",\"a\"]}", false],
    ["{\"name\":\"a\"}", false],
    ["{\"age\":1,\"tree\":{\"kids\":[{\"kids\":[]},{\"x\":1,\"y\":[null,true,1.50,1e+22,\"é😀\\u0001\"]}]}}", true]
  ])("%s: %s", (text, isValid) => assert.strictEqual(Acceptor.accepts(grammar, text), isValid))
})
