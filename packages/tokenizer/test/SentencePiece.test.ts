import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import * as Decoder from "../src/Decoder.ts"
import { special, text } from "../src/Segment.ts"
import * as Tokenizer from "../src/Tokenizer.ts"
import { codecOf, pieces, readText } from "./support/files.ts"

interface Vectors {
  readonly info:
    & Readonly<Record<"bos" | "eos" | "eot" | "unk" | "add_bos" | "add_eos" | "add_space_prefix", number>>
    & {
      readonly eog: ReadonlyArray<number>
    }
  readonly vectors: ReadonlyArray<{
    readonly text: string | null
    readonly hex: string
    readonly add_special: boolean
    readonly parse_special: boolean
    readonly ids: ReadonlyArray<number>
    readonly decoded: string
    readonly decoded_full: string
  }>
  readonly quirks: ReadonlyArray<{
    readonly text: string
    readonly add_special: boolean
    readonly parse_special: boolean
    readonly ids: ReadonlyArray<number>
    readonly canonical_ids: ReadonlyArray<number>
  }>
  readonly detokenize: ReadonlyArray<{
    readonly ids: ReadonlyArray<number>
    readonly remove_special: boolean
    readonly unparse_special: boolean
    readonly hex: string
  }>
}

const fromHex = (hex: string): string => new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.from(hex, "hex"))

describe.each(pieces)("%s", (name) => {
  const codec = codecOf(name)
  const { detokenize, info, quirks, vectors } = JSON.parse(readText(`test/vectors/tokenizer/${name}.json`)) as Vectors
  // a string holds valid UTF-8 only
  const texts = vectors.flatMap((vector) => typeof vector.text === "string" ? [{ ...vector, text: vector.text }] : [])

  it("has the ids with a meaning", () => {
    const { addBos, addEos, bos, eog, eos, eot, pieces: own, unknown } = codec.vocabulary
    assert.deepStrictEqual([bos, eos, eot, unknown], [info.bos, info.eos, info.eot, info.unk])
    assert.deepStrictEqual([addBos, addEos, own?.addSpacePrefix], [
      info.add_bos === 1,
      info.add_eos === 1,
      info.add_space_prefix === 1
    ])
    assert.deepStrictEqual([...eog], info.eog)
    assert.isAbove(texts.length, 150)
  })

  it.each(texts)("encodes and decodes $text (special: add $add_special, parse $parse_special)", (vector) => {
    const ids = codec.encode(vector.text, { addSpecial: vector.add_special, parseSpecial: vector.parse_special })
    assert.deepStrictEqual(ids, vector.ids)
    assert.strictEqual(codec.decode(ids, { removeSpecial: true }), fromHex(vector.decoded))
    assert.strictEqual(codec.decode(ids, { printSpecial: true }), fromHex(vector.decoded_full))
  })

  it.each(quirks)("never makes a special token by merging: $text", (vector) => {
    const ids = codec.encode(vector.text, { addSpecial: vector.add_special, parseSpecial: vector.parse_special })
    assert.deepStrictEqual(ids, vector.canonical_ids)
  })

  it("decodes any ids", () => {
    for (const { hex, ids, remove_special, unparse_special } of detokenize) {
      const found = codec.decode(ids, { removeSpecial: remove_special, printSpecial: unparse_special })
      assert.strictEqual(found, fromHex(hex), JSON.stringify({ ids, remove_special, unparse_special }))
    }
  })

  it("is not quadratic in a long text", () => {
    const text = "of the of ".repeat(30_000)
    assert.strictEqual(codec.decode(codec.encode(text)), text)
  })

  it.prop("any text comes back from its tokens, a mark as a space", { input: Schema.String }, ({ input }) => {
    const expected = input.toWellFormed().replaceAll("\u2581", " ")
    const ids = codec.encodeSegments([text(input)])
    // a piece of an undefined kind, as `gk`, prints nothing: vectors have it
    if (ids.some((id) => codec.vocabulary.kinds[id] === "undefined")) return
    assert.strictEqual(codec.decode(ids), expected)
  })

  it("streams what `bytesOf` prints, space in front included", () => {
    const ids = codec.encode("naïve 😀 text")
    const decoder = Decoder.make(codec)
    const prefix = info.add_space_prefix === 1 ? " " : ""
    assert.strictEqual(ids.map(decoder.push).join("") + decoder.flush(), `${prefix}naïve 😀 text`)
  })
})

describe("segments", () => {
  const codec = codecOf("spm")
  const [bos] = [codec.vocabulary.bos!]
  const name = codec.vocabulary.tokens[bos]!

  it("put a space behind special ones, and text next to text is one text", () => {
    const ids = codec.encodeSegments([special(name), text("He"), text("llo")])
    assert.deepStrictEqual(ids, codec.encode(`${name}Hello`, { parseSpecial: true }))
  })

  it("never become special by their text", () => {
    const ids = codec.encodeSegments([text(`a${name}b`)])
    assert.notInclude(ids, bos)
    assert.strictEqual(codec.decode(ids), `a${name}b`)
  })
})

describe("a vocabulary without types and scores", () => {
  const make = (more: Readonly<Record<string, unknown>>) =>
    Tokenizer.make(
      new Map(Object.entries({
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u2581", "<0x21>", ""],
        ...more
      }))
    )

  it("joins from the left, and writes unknown letters as bytes or as unknown", () => {
    const codec = Result.getOrThrow(make({ "tokenizer.ggml.add_space_prefix": false }))
    assert.deepStrictEqual(codec.encode("aab!c"), [3, 5, 7, 0])
    assert.deepStrictEqual(codec.encode("a", { addSpecial: true }), [1, 3])
    assert.strictEqual(codec.vocabulary.kinds[2], "control")
  })

  it.each([
    ["tokenizer.ggml.scores", [1, 2], "tokenizer.ggml.scores: expected 9 numbers, found an array of 2"],
    ["tokenizer.ggml.scores", "x", "tokenizer.ggml.scores: expected 9 numbers, found the string \"x\""]
  ])("refuses %s = %j", (key, value, message) => {
    assert.strictEqual(Result.getOrThrow(Result.flip(make({ [key]: value }))).message, message)
  })
})
