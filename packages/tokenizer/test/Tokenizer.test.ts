import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import { special, text } from "../src/Segment.ts"
import * as Tokenizer from "../src/Tokenizer.ts"
import { codecOf, small, smallCodec, vocabularies } from "./support/files.ts"

const failure = (metadata: ReadonlyMap<string, unknown>) => Result.getOrThrow(Result.flip(Tokenizer.make(metadata)))

const without = (key: string) => {
  const metadata = new Map(small({}))
  metadata.delete(key)
  return metadata
}

/** Merging by the definition: join the leftmost pair of the smallest rank until none is left. */
const mergeSlowly = (piece: string, merges: ReadonlyArray<string>): ReadonlyArray<string> => {
  let parts: ReadonlyArray<string> = [...piece]
  for (;;) {
    const ranks = parts.slice(1).map((part, i) => merges.indexOf(`${parts[i]} ${part}`))
    const best = Math.min(...ranks.map((rank) => rank < 0 ? Infinity : rank))
    const at = ranks.indexOf(best)
    if (at < 0) return parts
    parts = [...parts.slice(0, at), parts[at]! + parts[at + 1]!, ...parts.slice(at + 2)]
  }
}

describe("make", () => {
  it.each([
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.merges"
  ])("says that %s is missing", (key) => {
    const error = failure(without(key))
    assert.include(error, { _tag: "InvalidMetadata", key, found: "nothing" })
  })

  it.each([
    ["tokenizer.ggml.model", 5, "tokenizer.ggml.model: expected a string, found the number 5"],
    ["tokenizer.ggml.tokens", "abc", "tokenizer.ggml.tokens: expected an array of strings, found the string \"abc\""],
    [
      "tokenizer.ggml.token_type",
      [1, 2],
      "tokenizer.ggml.token_type: expected 256 token types from 1 to 6, found an array of 2"
    ],
    ["tokenizer.ggml.merges", ["a b", "ab"], "tokenizer.ggml.merges[1]: expected two texts and a space, found \"ab\""],
    [
      "tokenizer.ggml.bos_token_id",
      256,
      "tokenizer.ggml.bos_token_id: expected a token id below 256, found the number 256"
    ],
    ["tokenizer.ggml.add_bos_token", 1, "tokenizer.ggml.add_bos_token: expected a boolean, found the number 1"],
    [
      "tokenizer.ggml.pre",
      "refact",
      "tokenizer.ggml.pre: \"refact\" is not supported; supported are glm4, chatglm-bpe, deepseek-llm, deepseek-v3, " +
      "youtu, llama-bpe, qwen2, gpt-2"
    ],
    ["tokenizer.ggml.model", "bert", "tokenizer.ggml.model: \"bert\" is not supported; supported are gpt2, llama"]
  ])("refuses %s = %j", (key, value, message) => {
    assert.strictEqual(failure(small({ more: { [key]: value } })).message, message)
  })

  it("refuses two tokens of one text, unless one of them is special or there is none", () => {
    const specials = (...texts: ReadonlyArray<readonly [string, number]>) => small({ specials: texts })
    assert.strictEqual(
      failure(specials(["a", 1])).message,
      "tokenizer.ggml.tokens: expected tokens that differ, found \"a\" as 97 and 256"
    )
    assert.include(failure(specials(["<s>", 3], ["<s>", 4])).message, "\"<s>\" as 256 and 257")
    for (const metadata of [specials(["a", 3]), specials(["", 1], ["", 1])]) {
      assert.isTrue(Result.isSuccess(Tokenizer.make(metadata)))
    }
  })

  it("takes values as they are or wrapped", () => {
    const wrapped = new Map([...small({})].map(([key, value]) => [key, { type: "any", value }]))
    assert.deepStrictEqual(Result.getOrThrow(Tokenizer.make(wrapped)).encode("a"), [97 - 0x21 + 0x21])
  })

  it.effect("is done by a service, too", () =>
    Effect.gen(function*() {
      const { make } = yield* Tokenizer.Tokenizer
      assert.deepStrictEqual(Result.getOrThrow(make(small({ merges: ["a b"] }))).encode("ab"), [256])
      assert.strictEqual(Result.getOrThrow(Result.flip(make(new Map())))._tag, "InvalidMetadata")
    }))
})

describe("merging", () => {
  it("takes the smallest rank first, then the leftmost", () => {
    const codec = smallCodec({ merges: ["b c", "a b", "a a"] })
    const print = (input: string) => codec.encode(input).map((id) => codec.decode([id])).join("|")
    assert.strictEqual(print("abc"), "a|bc")
    assert.strictEqual(print("aaa"), "aa|a")
    assert.strictEqual(print("aaaab"), "aa|a|ab")
  })

  it.prop("agrees with the definition, short pieces and long", {
    pairs: Schema.Array(
      Schema.Tuple([Schema.Literals(["a", "b", "ab", "ba", "aa"]), Schema.Literals(["a", "b", "ab", "bb"])])
    ),
    words: Schema.Array(Schema.Literals(["a", "b", "ab", "aab", "bba", "abababab", "aaaaaaaaaaaaaaaaaaaaaaaa"]))
  }, ({ pairs, words }) => {
    const merges = [...new Set(pairs.map(([a, b]) => `${a} ${b}`))]
    const codec = smallCodec({ merges })
    for (const piece of [words.join(""), words.join("").repeat(12)]) {
      const found = codec.encode(piece).map((id) => codec.vocabulary.tokens[id])
      assert.deepStrictEqual(found, piece === "" ? [] : mergeSlowly(piece, merges))
    }
  })

  it("is not quadratic in a long piece", () => {
    const codec = smallCodec({ merges: ["a a", "aa aa", "aaaa aaaa"] })
    assert.strictEqual(codec.encode("a".repeat(800_000)).length, 100_000)
  })

  it("emits a merged text that is no token byte by byte", () => {
    const metadata = new Map(small({ merges: ["a b", "ab c"] }))
    const tokens = metadata.get("tokenizer.ggml.tokens") as ReadonlyArray<string>
    metadata.set("tokenizer.ggml.tokens", tokens.map((token) => token === "abc" ? "other" : token))
    assert.deepStrictEqual(Result.getOrThrow(Tokenizer.make(metadata)).encode("abcab"), [97, 98, 99, 256])
  })

  it("takes a whole piece directly only where merges are ignored", () => {
    const options = { merges: ["x y"], more: { "tokenizer.ggml.merges": [] } }
    assert.deepStrictEqual(smallCodec({ ...options, pre: "qwen2" }).encode("xy"), [120, 121])
    assert.deepStrictEqual(smallCodec({ ...options, pre: "llama-bpe" }).encode("xy"), [256])
  })

  it("emits the unknown token for a byte that is no token, or nothing", () => {
    const tokens = { "tokenizer.ggml.tokens": ["a", "?"], "tokenizer.ggml.token_type": [1, 2] }
    assert.deepStrictEqual(smallCodec({ more: tokens }).encode("aba"), [0, 0])
    const unknown = { ...tokens, "tokenizer.ggml.unknown_token_id": 1 }
    assert.deepStrictEqual(smallCodec({ more: unknown }).encode("aba"), [0, 1, 0])
  })
})

describe("special tokens", () => {
  const codec = smallCodec({ specials: [["<a>", 3], ["<u>", 4], ["<a><u>", 3], ["<?>", 2], ["plain", 1], ["off", 5]] })
  const [a, u, both, unknown] = [256, 257, 258, 259]

  it("cuts the longest first", () => {
    assert.deepStrictEqual(codec.encode("<u><a><u><a>", { parseSpecial: true }), [u, both, a])
    assert.deepStrictEqual(codec.encode("<?>", { parseSpecial: true }), [unknown])
  })

  it("recognises only user-defined ones when not parsing", () => {
    assert.deepStrictEqual(codec.encode("<u><a>"), [u, ...[..."<a>"].map((letter) => codec.encode(letter)[0]!)])
  })

  it("never makes one from the text of a segment", () => {
    assert.deepStrictEqual(codec.encodeSegments([special("<a>"), text("<a>")]), [a, ...codec.encode("<a>")])
    const ids = codec.encodeSegments([text("<u><?><a><u>")])
    assert.isTrue(ids.every((id) => id < 256))
    assert.deepStrictEqual(codec.encodeSegments([special("<no>")]), codec.encode("<no>"))
  })

  it("never arrives at one by merging or by taking a whole piece", () => {
    const merging = smallCodec({ merges: ["x y"], specials: [["xy", 4]], more: {} })
    const metadata = new Map(small({ specials: [["xy", 4]], pre: "llama-bpe" }))
    metadata.set("tokenizer.ggml.merges", ["x y"])
    const whole = Result.getOrThrow(Tokenizer.make(metadata))
    assert.deepStrictEqual(whole.encodeSegments([text("xy")]), [120, 121])
    assert.deepStrictEqual(whole.encode("xy"), [256])
    assert.deepStrictEqual(merging.encodeSegments([text("xy")]), [256])
  })

  it("prints control and unknown tokens only when asked", () => {
    assert.strictEqual(codec.decode([a, u, unknown, 97]), "<u>a")
    assert.strictEqual(codec.decode([a, u, unknown, 97], { printSpecial: true }), "<a><u><?>a")
    assert.strictEqual(codec.decode([97, 999, -1, 98]), "ab")
  })

  it("adds bos and eos where the file or the pre-tokenizer says so", () => {
    const ids = { "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2 }
    const encode = (pre: string, more: object) =>
      smallCodec({ pre, more: { ...ids, ...more } }).encode("a", { addSpecial: true })
    assert.deepStrictEqual(encode("qwen2", {}), [97])
    assert.deepStrictEqual(encode("llama-bpe", {}), [1, 97])
    assert.deepStrictEqual(encode("llama-bpe", { "tokenizer.ggml.add_bos_token": false }), [97])
    assert.deepStrictEqual(encode("qwen2", { "tokenizer.ggml.add_eos_token": true }), [97, 2])
  })

  it("counts as the end of a generation by key or by text", () => {
    const { vocabulary } = smallCodec({
      specials: [["<|im_end|>", 3], ["<|eot_id|>", 3], ["<pad>", 3]],
      more: { "tokenizer.ggml.eos_token_id": 7, "tokenizer.ggml.fim_pad_token_id": 258 }
    })
    assert.deepStrictEqual([...vocabulary.eog], [7, 256, 257, 258])
    assert.strictEqual(vocabulary.eot, 257)
  })
})

describe("any text", () => {
  const codecs = vocabularies.map(codecOf)

  it.prop("comes back from its tokens, with lone surrogates as U+FFFD", { input: Schema.String }, ({ input }) => {
    for (const codec of codecs) {
      for (const parseSpecial of [false, true]) {
        const ids = codec.encode(input, { parseSpecial })
        assert.strictEqual(codec.decode(ids, { printSpecial: true }), input.toWellFormed())
      }
    }
  })

  it("may hold lone surrogates and a byte order mark", () => {
    for (const codec of codecs) {
      assert.strictEqual(codec.decode(codec.encode("\ufeffa\ud800b\udc00")), "\ufeffa\ufffdb\ufffd")
    }
  })

  it("may be a long run of one character", () => {
    for (const codec of codecs) {
      for (const letter of [" ", "\n", "a", "é", "中", "😀", "!", "1", "\u0301", "\ud800"]) {
        const run = letter.repeat(50_000)
        assert.strictEqual(codec.decode(codec.encode(`${run}x`)), `${run.toWellFormed()}x`)
      }
    }
  })
})
