/** Tokenizers of random vocabularies: what is encoded is decoded again. */
import { letters } from "../../packages/tokenizer/src/internal/bytes.ts"
import { known } from "../../packages/tokenizer/src/PreTokenizer.ts"
import * as Tokenizer from "../../packages/tokenizer/src/Tokenizer.ts"
import type { Random } from "../Random.ts"
import { accepted, bytes, refused, type Target, text, wrong } from "../Target.ts"

/** The tokens of the bytes in a vocabulary of SentencePiece. */
const byteTokens = Array.from(
  { length: 256 },
  (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`
)

const pieces = [
  "a",
  "\u2581",
  "\u2581the",
  "b",
  "the",
  "Ġ",
  "Ġthe",
  "Ċ",
  "é",
  "Ã©",
  "😀",
  "<|end|>",
  "<s>",
  "",
  " ",
  "x y",
  "x".repeat(500),
  "\0"
]
const texts = [
  "a",
  " the",
  "\n",
  "é",
  "😀",
  "<|end|>",
  "<s>",
  "中文",
  "\ud800",
  "7",
  "x".repeat(300),
  " ".repeat(40),
  "\u0000"
]

const list = <A>(random: Random, most: number, one: () => A): Array<A> =>
  Array.from({ length: random.below(most) }, one)

/** Metadata as JSON, and a text. */
const make = (random: Random): Uint8Array => {
  const isSentencePiece = random.oneIn(3)
  const first = isSentencePiece ? byteTokens : letters
  const tokens = [...first, ...list(random, 40, () => random.pick(pieces) + random.pick(pieces))]
  if (random.oneIn(4)) tokens.splice(random.below(256), 1 + random.below(5))
  const types = tokens.map((_, i) => i < 256 ? isSentencePiece ? 6 : 1 : random.pick([1, 1, 1, 2, 3, 4, 5, 6]))
  if (random.oneIn(8)) types[random.below(types.length)] = random.pick([0, 7, -1, 1.5])
  if (random.oneIn(10)) types.pop()
  const merges = list(random, 60, () =>
    random.oneIn(30)
      ? random.pick(["", " ", "a", "a ", " a", "a  b"])
      : `${random.pick([...letters, ...pieces])} ${random.pick([...letters, ...pieces])}`)
  const id = (): unknown => random.oneIn(8) ? random.pick([-1, 1e9, 0.5, "1", null]) : random.below(tokens.length)
  const metadata: Record<string, unknown> = {
    "tokenizer.ggml.model": random.oneIn(15)
      ? random.pick(["llama", "", "x".repeat(99999)])
      : isSentencePiece
      ? "llama"
      : "gpt2",
    "tokenizer.ggml.pre": random.oneIn(15) ? random.pick(["", "nope"]) : random.pick([...known.keys()]),
    "tokenizer.ggml.tokens": random.oneIn(20) ? random.pick([[], [1], "x"]) : tokens,
    "tokenizer.ggml.merges": random.oneIn(20) ? random.pick([[], [1], "x"]) : merges
  }
  if (!random.oneIn(3)) metadata["tokenizer.ggml.token_type"] = types
  if (isSentencePiece && random.oneIn(2)) metadata["tokenizer.ggml.scores"] = tokens.map(() => random.below(9) - 4)
  for (const name of ["bos", "eos", "eot", "unknown", "padding"]) {
    if (random.oneIn(3)) metadata[`tokenizer.ggml.${name}_token_id`] = id()
  }
  if (random.oneIn(4)) metadata["tokenizer.ggml.add_bos_token"] = random.pick([true, false, 1])
  return bytes(JSON.stringify({ metadata, input: list(random, 12, () => random.pick(texts)).join("") }))
}

/** Vocabularies, with a text that goes through them. */
export const tokenizers: Target = {
  name: "tokenizer",
  make,
  run: (given) => {
    const { input, metadata } = JSON.parse(text(given)) as { input: string; metadata: Record<string, unknown> }
    const made = Tokenizer.make(new Map(Object.entries(metadata)))
    if (made._tag === "Failure") return refused(made.failure)
    const { decode, encode, vocabulary } = made.success
    const ids = encode(input)
    const outside = ids.find((id) => !(Number.isInteger(id) && id >= 0 && id < vocabulary.tokens.length))
    if (outside !== undefined) return wrong(`the token ${outside} is not in the vocabulary`)
    if (vocabulary.pieces !== undefined) {
      // what prints nothing, and what is cut out of the text, need not come back; without its own piece a mark is three bytes
      const isPlain = vocabulary.kinds.every((kind) => kind === "normal" || kind === "byte")
      const isWhole = vocabulary.tokens.includes("\u2581") &&
        byteTokens.every((token) => vocabulary.kinds[vocabulary.tokens.lastIndexOf(token)] === "byte")
      const back = decode(ids)
      return !isPlain || !isWhole || back === input.toWellFormed().replaceAll("\u2581", " ")
        ? accepted
        : wrong(`${JSON.stringify(input)} comes back as ${JSON.stringify(back)}`)
    }
    const isComplete = letters.every((letter) => {
      const id = vocabulary.tokens.lastIndexOf(letter)
      return id >= 0 && vocabulary.kinds[id] === "normal"
    })
    if (!isComplete) return accepted
    const again = decode(ids)
    return again === input.toWellFormed()
      ? accepted
      : wrong(`${JSON.stringify(input)} comes back as ${JSON.stringify(again)}`)
  }
}
