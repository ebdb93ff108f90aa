/** What a file's metadata says about its tokens, checked. */
import { Result } from "effect"
import { known, type PreTokenizer } from "./PreTokenizer.ts"
import { InvalidMetadata, type TokenizerError, UnsupportedTokenizer } from "./TokenizerError.ts"

/**
 * The metadata of a model file: strings, numbers, booleans and arrays of them by key. A value may be wrapped as
 * `{ value }`, the way `@tg/gguf` gives it.
 */
export type Metadata = ReadonlyMap<string, unknown>

/** The kind of a token. */
export type Kind = "normal" | "unknown" | "control" | "user-defined" | "unused" | "byte"

/** The tokens, their kinds, and the ids with a meaning. */
export interface Vocabulary {
  /** The text of each token: in the byte alphabet, or plain for special ones. */
  readonly tokens: ReadonlyArray<string>
  readonly kinds: ReadonlyArray<Kind>
  readonly merges: ReadonlyArray<string>
  readonly preTokenizer: PreTokenizer
  readonly bos: number | undefined
  readonly eos: number | undefined
  readonly eot: number | undefined
  readonly unknown: number | undefined
  readonly padding: number | undefined
  readonly addBos: boolean
  readonly addEos: boolean
  /** The ids that end a generation. */
  readonly eog: ReadonlySet<number>
}

/** Control, user-defined and unknown tokens: they are cut out of a text before anything else. */
export const isSpecial = (kind: Kind): boolean => kind === "control" || kind === "user-defined" || kind === "unknown"

const kindNames: ReadonlyArray<Kind> = ["normal", "unknown", "control", "user-defined", "unused", "byte"]

// In order of preference for a missing end-of-turn key.
const endTexts: ReadonlySet<string> = new Set([
  "<|eot_id|>",
  "<|im_end|>",
  "<|end|>",
  "<|endoftext|>",
  "<|end_of_text|>",
  "<end_of_turn>",
  "</s>",
  "<|eom_id|>",
  "<EOT>",
  "<｜end▁of▁sentence｜>"
])

const endKeys = ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"]

/** Reads and checks the keys `tokenizer.ggml.*`. */
export const make = (metadata: Metadata): Result.Result<Vocabulary, TokenizerError> =>
  Result.gen(function*() {
    const model = yield* required(metadata, "tokenizer.ggml.model", string)
    if (model !== "gpt2") {
      return yield* Result.fail(
        new UnsupportedTokenizer({ key: "tokenizer.ggml.model", name: model, supported: ["gpt2"] })
      )
    }
    const pre = yield* required(metadata, "tokenizer.ggml.pre", string)
    const preTokenizer = known.get(pre)
    if (preTokenizer === undefined) {
      return yield* Result.fail(
        new UnsupportedTokenizer({ key: "tokenizer.ggml.pre", name: pre, supported: [...known.keys()] })
      )
    }
    const tokens = yield* required(metadata, "tokenizer.ggml.tokens", strings)
    const merges = yield* required(metadata, "tokenizer.ggml.merges", strings)
    const types = yield* optional(metadata, "tokenizer.ggml.token_type", typesOf(tokens.length))
    const kinds: ReadonlyArray<Kind> = types ?? tokens.map(() => "normal")
    const token = (name: string) => optional(metadata, `tokenizer.ggml.${name}_token_id`, idBelow(tokens.length))
    const bos = yield* token("bos")
    const eos = yield* token("eos")
    const ends: Array<number> = []
    for (const key of endKeys) ends.push(...[yield* token(key)].filter((id) => id !== undefined))
    const byText = new Map(tokens.flatMap((text, id) => endTexts.has(text) ? [[text, id] as const] : []))
    const named = [...endTexts].map((text) => byText.get(text)).filter((id) => id !== undefined)
    return {
      tokens,
      kinds,
      merges,
      preTokenizer,
      bos,
      eos,
      eot: (yield* token("eot")) ?? named[0],
      unknown: yield* token("unknown"),
      padding: yield* token("padding"),
      addBos: (yield* optional(metadata, "tokenizer.ggml.add_bos_token", boolean)) ?? preTokenizer.addBos,
      addEos: (yield* optional(metadata, "tokenizer.ggml.add_eos_token", boolean)) ?? false,
      eog: new Set([...ends, ...named].toSorted((a, b) => a - b))
    }
  })

const valueAt = (metadata: Metadata, key: string): unknown => {
  const found = metadata.get(key)
  return typeof found === "object" && found !== null && "value" in found ? found.value : found
}

/** What a key should hold, in words and as a check. */
export interface Reader<A> {
  readonly expected: string
  readonly read: (value: unknown) => A | undefined
}

/** A key that must be there. */
export const required = <A>(metadata: Metadata, key: string, reader: Reader<A>): Result.Result<A, InvalidMetadata> => {
  const value = valueAt(metadata, key)
  const read = value === undefined ? undefined : reader.read(value)
  if (read !== undefined) return Result.succeed(read)
  return Result.fail(new InvalidMetadata({ key, expected: reader.expected, found: describe(value) }))
}

/** A key that may be missing, but not be something else. */
export const optional = <A>(
  metadata: Metadata,
  key: string,
  reader: Reader<A>
): Result.Result<A | undefined, InvalidMetadata> =>
  valueAt(metadata, key) === undefined ? Result.succeed(undefined) : required(metadata, key, reader)

/** A string. */
export const string: Reader<string> = {
  expected: "a string",
  read: (value) => typeof value === "string" ? value : undefined
}

const boolean: Reader<boolean> = {
  expected: "a boolean",
  read: (value) => typeof value === "boolean" ? value : undefined
}

const strings: Reader<ReadonlyArray<string>> = {
  expected: "an array of strings",
  read: (value) => Array.isArray(value) && value.every((item) => typeof item === "string") ? value : undefined
}

const idBelow = (count: number): Reader<number> => ({
  expected: `a token id below ${count}`,
  read: (value) =>
    typeof value === "number" && Number.isInteger(value) && value >= 0 && value < count ? value : undefined
})

const typesOf = (count: number): Reader<ReadonlyArray<Kind>> => ({
  expected: `${count} token types from 1 to 6`,
  read: (value) => {
    if (!isNumbers(value) || value.length !== count) return undefined
    const kinds = Array.from(value, (type) => kindNames[type - 1])
    return kinds.every((kind) => kind !== undefined) ? kinds : undefined
  }
})

const isNumbers = (value: unknown): value is ArrayLike<number> & Iterable<number> =>
  Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView))

const describe = (value: unknown): string => {
  if (value === undefined) return "nothing"
  if (typeof value === "string") return `the string ${JSON.stringify(value.slice(0, 40))}`
  if (typeof value === "object" && value !== null && "length" in value) return `an array of ${String(value.length)}`
  return `the ${typeof value} ${String(value)}`
}
