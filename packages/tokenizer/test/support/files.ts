import { Gguf } from "@tg/gguf"
import { Result } from "effect"
import { readFileSync } from "node:fs"
import * as Tokenizer from "../../src/Tokenizer.ts"
import type { Metadata } from "../../src/Vocabulary.ts"

const root = new URL("../../../../", import.meta.url)

export const readText = (path: string): string => readFileSync(new URL(path, root), "utf8")

export const metadataOf = (path: string): Metadata =>
  Result.getOrThrow(Gguf.fromBytes(path, readFileSync(new URL(path, root)))).metadata

export const vocabularies = ["deepseek-llm", "glm4", "youtu", "llama-bpe", "qwen2"] as const

/** Vocabularies of SentencePiece. */
export const pieces = ["spm", "spm-b"] as const

export const codecOf = (name: typeof vocabularies[number] | typeof pieces[number]): Tokenizer.Codec =>
  Result.getOrThrow(Tokenizer.make(metadataOf(`test/vectors/tokenizer/${name}.vocab.gguf`)))

/** Metadata of a tokenizer that knows the bytes, some merges and some special tokens behind them. */
export const small = ({ merges = [], more = {}, pre = "qwen2", specials = [] }: {
  readonly merges?: ReadonlyArray<string>
  readonly more?: Readonly<Record<string, unknown>>
  readonly pre?: string
  readonly specials?: ReadonlyArray<readonly [text: string, type: number]>
}): Metadata => {
  const letters = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte))
    .map((letter) => /[!-~\u00a1-\u00ac\u00ae-\u00ff]/.test(letter) ? letter : undefined)
  let next = 0x100
  const bytes = letters.map((letter) => letter ?? String.fromCharCode(next++))
  const merged = merges.map((merge) => merge.replace(/(?<=.) /, ""))
  const tokens = [...bytes, ...new Set(merged), ...specials.map(([text]) => text)]
  const normal = tokens.length - specials.length
  return new Map<string, unknown>(Object.entries({
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": pre,
    "tokenizer.ggml.tokens": tokens,
    "tokenizer.ggml.token_type": Int32Array.from(tokens, (_, id) => specials[id - normal]?.[1] ?? 1),
    "tokenizer.ggml.merges": merges,
    ...more
  }))
}

export const smallCodec = (options: Parameters<typeof small>[0]): Tokenizer.Codec =>
  Result.getOrThrow(Tokenizer.make(small(options)))
