/** What building and using a tokenizer of the size of GLM's costs: `node packages/tokenizer/bench/tokenizer.ts`. */
import { Result } from "effect"
import { readFileSync } from "node:fs"
import { letters } from "../src/internal/bytes.ts"
import * as Tokenizer from "../src/Tokenizer.ts"
import type { Metadata } from "../src/Vocabulary.ts"

/** Short words over the commonest letters, with and without a space in front, and every way to build each of them. */
const synthetic = (tokenCount: number, mergeCount: number): Metadata => {
  const english = [..."etaoinshrdlucmfwypg"]
  const longer = (words: ReadonlyArray<string>) => words.flatMap((word) => english.map((letter) => word + letter))
  const [two, three] = [longer(english), longer(longer(english))]
  const spaced = ["Ġ", ...english, ...two, ...three].map((word) => word === "Ġ" ? word : `Ġ${word}`)
  const words = [...english.map((letter) => `Ġ${letter}`), ...two, ...spaced.slice(20, 400), ...three, ...longer(three)]
  const tokens = [...new Set([...letters, ...words, ...spaced, ...longer(spaced)])].slice(0, tokenCount)
  const merges = tokens.slice(256).flatMap((token) =>
    Array.from({ length: token.length - 1 }, (_, i) => `${token.slice(0, i + 1)} ${token.slice(i + 1)}`)
  ).slice(0, mergeCount)
  return new Map<string, unknown>(Object.entries({
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "glm4",
    "tokenizer.ggml.tokens": tokens,
    "tokenizer.ggml.token_type": Int32Array.from(tokens, () => 1),
    "tokenizer.ggml.merges": merges
  }))
}

const time = <A>(run: () => A): readonly [millis: number, value: A] => {
  const start = performance.now()
  const value = run()
  return [performance.now() - start, value]
}

const best = (times: number, run: () => unknown): number =>
  Math.min(...Array.from({ length: times }, () => time(run)[0]))

const metadata = synthetic(155_000, 320_000)
const count = (key: string): number => (metadata.get(key) as ReadonlyArray<string>).length
const [first, codec] = time(() => Result.getOrThrow(Tokenizer.make(metadata)))
console.log(`${count("tokenizer.ggml.tokens")} tokens, ${count("tokenizer.ggml.merges")} merges`)
console.log(`build: ${first.toFixed(0)} ms cold, ${best(3, () => Tokenizer.make(metadata)).toFixed(0)} ms warm`)

const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8")
const texts: Readonly<Record<string, string>> = {
  "English": readme.repeat(Math.ceil(1e6 / readme.length)),
  "spaces": " ".repeat(1e6),
  "one word": "etaoin".repeat(1e6 / 6),
  "Chinese": "中文字符的文本。".repeat(4e4)
}
for (const [name, text] of Object.entries(texts)) {
  const bytes = new TextEncoder().encode(text).length
  const [cold] = time(() => codec.encode(text))
  const warm = best(3, () => codec.encode(text))
  const ids = codec.encode(text)
  const back = best(3, () => codec.decode(ids))
  const speed = (millis: number): string => (bytes / millis / 1e3).toFixed(1)
  console.log(
    `${name}: encode ${speed(cold)} MB/s cold, ${speed(warm)} warm; decode ${speed(back)}; ${ids.length} tokens`
  )
}
