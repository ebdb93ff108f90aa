/** Vocabularies to try masks with: tg-tiny's, and a made one of GLM's size. */
import { Gguf } from "@tg/gguf"
import { Tokenizer } from "@tg/tokenizer"
import { Result } from "effect"
import { readFileSync } from "node:fs"
import type { TokenTable } from "../../src/index.ts"

const root = new URL("../../../../", import.meta.url)
const encoder = new TextEncoder()

/** The vocabulary of the model of the tests. */
export const tiny = (): TokenTable.Vocabulary => {
  const file = readFileSync(new URL("apps/cli/models/tg-tiny-Q4_0.gguf", root))
  const codec = Result.getOrThrow(Tokenizer.make(Result.getOrThrow(Gguf.fromBytes("tg-tiny", file)).metadata))
  return { size: codec.vocabulary.tokens.length, bytesOf: codec.bytesOf, endTokens: codec.vocabulary.eog }
}

/**
 * As many tokens as GLM has: bytes, numbers, runs of white space, words and parts of words of English text and code with and
 * without a space or a quote before and after, marks of JSON and of code, and Chinese words of one to four characters.
 */
export const large = (size = 154_880): TokenTable.Vocabulary => {
  const texts = new Set<string>()
  const small = tiny()
  const decoder = new TextDecoder()
  for (let id = 0; id < small.size; id++) {
    const text = decoder.decode(small.bytesOf(id))
    if (!text.includes("\ufffd") && text !== "") texts.add(text)
  }
  for (let i = 0; i < 1000; i++) texts.add(String(i))
  for (let i = 1; i <= 64; i++) for (const white of [" ", "\t", "\n", "\n" + " ".repeat(i)]) texts.add(white.repeat(i))
  const marks = [
    "\"",
    "\":",
    "\",\"",
    "\"}",
    "\"},{\"",
    "\"]",
    "\":\"",
    "\": \"",
    "{\"",
    "[\"",
    "}",
    "},",
    "]}",
    "}}",
    "\\n",
    "\\\"",
    "\"/>",
    "\">",
    "=\"",
    "\")",
    "('",
    "')",
    "()",
    "();",
    "//",
    "/*",
    "*/",
    "==",
    "=>",
    "->",
    "::",
    "...",
    "},{",
    "],[",
    "null",
    "true",
    "false",
    ",\"",
    ", \"",
    "\",",
    "\";",
    "\"\"",
    "```"
  ]
  for (const mark of marks) for (const before of ["", " ", "\n"]) texts.add(before + mark)
  const source = [
    "README.md",
    "apps/cli/models/eval.jsonl",
    "packages/constrain/src/internal/schemaReader.ts",
    "packages/tokenizer/src/Tokenizer.ts",
    "docs/decisions.md"
  ]
    .map((file) => readFileSync(new URL(file, root), "utf8")).join("\n")
  const words = [...new Set(source.match(/[A-Za-z]{2,}/g))]
  const forms = (
    word: string
  ): ReadonlyArray<string> => [
    word,
    ` ${word}`,
    word.toLowerCase(),
    ` ${word.toUpperCase()}`,
    `_${word}`,
    `.${word}`,
    `${word}"`,
    `"${word}`,
    `${word}":`,
    `${word}'s`
  ]
  for (const word of words) for (const form of forms(word)) texts.add(form)
  const han = Array.from({ length: 1500 }, (_, i) => String.fromCodePoint(0x4e00 + i * 13))
  han.forEach((char, i) => {
    texts.add(char)
    for (let k = 1; k < 16; k++) {
      texts.add(char + han[(i * 7 + k * 31) % 1500]! + (k % 3 === 0 ? han[(i + k) % 1500]! : ""))
    }
  })
  let seed = 1
  const random = (below: number): number => (seed = (seed * 48271) % 2147483647) % below
  while (texts.size < size - 300) {
    const [a, b] = [words[random(words.length)]!, words[random(words.length)]!]
    for (const form of forms(a.slice(0, 1 + random(6)) + b.slice(0, 1 + random(6)))) texts.add(form)
  }
  const all = [
    ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
    ...[...texts].slice(0, size - 266).map((text) => encoder.encode(text))
  ]
  return { size, bytesOf: (id) => all[id], endTokens: [size - 1] }
}

/** The ids of a text, the longest token first. */
export const tokenise = (table: TokenTable.TokenTable, text: string): ReadonlyArray<number> => {
  const { byte, end, token } = table.tree
  const bytes = encoder.encode(text)
  const ids: Array<number> = []
  for (let at = 0; at < bytes.length;) {
    let [node, found, length] = [0, -1, 0]
    for (let i = at; i < bytes.length; i++) {
      let child = node + 1
      while (child < end[node]! && byte[child] !== bytes[i]) child = end[child]!
      if (child >= end[node]!) break
      node = child
      if (token[node]! >= 0) [found, length] = [token[node]!, i + 1 - at]
    }
    if (found < 0) throw new Error(`no token for byte ${bytes[at]}`)
    ids.push(found)
    at += length
  }
  return ids
}
