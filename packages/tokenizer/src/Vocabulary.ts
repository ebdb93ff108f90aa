/** The vocabulary of a file, from its metadata, validated. */
import { Result } from "effect"
import { known, noPreTokenizer, type PreTokenizer } from "./PreTokenizer.ts"
import { clip, InvalidMetadata, type TokenizerError, UnsupportedTokenizer } from "./TokenizerError.ts"

/**
 * The metadata of a model file: strings, numbers, booleans and arrays of them by key. A value may be wrapped as
 * `{ value }`, the way `@tg/gguf` gives it.
 */
export type Metadata = ReadonlyMap<string, unknown>

/** The kind of a token. Undefined ones, which only SentencePiece files may have, print nothing. */
export type Kind = "normal" | "unknown" | "control" | "user-defined" | "unused" | "byte" | "undefined"

/** The further data of a SentencePiece vocabulary, which has no merges. */
export interface Pieces {
  /** The priority of the merge that makes each token, higher first. */
  readonly scores: Float32Array
  /** Whether a space goes in front of the text, and of what follows a special token. */
  readonly addSpacePrefix: boolean
  /** Whether white space right behind this special token is dropped. */
  readonly trimsBehind: (special: string) => boolean
}

/** The tokens, their kinds, and the ids with a meaning. */
export interface Vocabulary {
  /**
   * The text of each token. Byte-level BPE: in the byte alphabet, or plain for special ones. SentencePiece: with spaces
   * written as U+2581, bytes as `<0xHH>`.
   */
  readonly tokens: ReadonlyArray<string>
  readonly kinds: ReadonlyArray<Kind>
  readonly merges: ReadonlyArray<string>
  readonly preTokenizer: PreTokenizer
  /** Of SentencePiece vocabularies. */
  readonly pieces: Pieces | undefined
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
  "<｜end▁of▁sentence｜>",
  "<eos>",
  "_<EOT>",
  "[EOT]",
  "[EOS]",
  "<end_of_utterance>"
])

const endKeys = ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"]

/** Reads and checks the keys `tokenizer.ggml.*`. */
export const make = (metadata: Metadata): Result.Result<Vocabulary, TokenizerError> =>
  Result.gen(function*() {
    const model = yield* required(metadata, "tokenizer.ggml.model", string)
    if (model === "gpt2") return yield* byteLevel(metadata)
    if (model === "llama") return yield* sentencePiece(metadata)
    return yield* Result.fail(
      new UnsupportedTokenizer({ key: "tokenizer.ggml.model", name: model, supported: ["gpt2", "llama"] })
    )
  })

const byteLevel = (metadata: Metadata): Result.Result<Vocabulary, TokenizerError> =>
  Result.gen(function*() {
    const pre = yield* required(metadata, "tokenizer.ggml.pre", string)
    const preTokenizer = known.get(pre)
    if (preTokenizer === undefined) {
      return yield* Result.fail(
        new UnsupportedTokenizer({ key: "tokenizer.ggml.pre", name: pre, supported: [...known.keys()] })
      )
    }
    const tokens = yield* required(metadata, "tokenizer.ggml.tokens", strings)
    const merges = yield* required(metadata, "tokenizer.ggml.merges", mergeList)
    const types = yield* optional(metadata, "tokenizer.ggml.token_type", typesOf(tokens.length))
    const kinds = types ?? tokens.map((): Kind => "normal")
    yield* checkDiffering(tokens, kinds)
    const ids = yield* meaningsOf(metadata, tokens)
    return {
      ...ids,
      tokens,
      kinds,
      merges,
      preTokenizer,
      pieces: undefined,
      addBos: ids.addBos ?? preTokenizer.addBos,
      addEos: ids.addEos ?? false
    }
  })

/** Refuses two tokens with one text, unless one is special. Tokens without a text are unused rows. */
const checkDiffering = (
  tokens: ReadonlyArray<string>,
  kinds: ReadonlyArray<Kind>
): Result.Result<void, InvalidMetadata> => {
  const plain = new Map<string, number>()
  const special = new Map<string, number>()
  for (const [id, text] of tokens.entries()) {
    const ids = isSpecial(kinds[id]!) ? special : plain
    const before = ids.get(text)
    if (before !== undefined && text !== "") {
      const found = `${JSON.stringify(clip(text))} as ${before} and ${id}`
      return Result.fail(new InvalidMetadata({ key: "tokenizer.ggml.tokens", expected: "tokens that differ", found }))
    }
    ids.set(text, id)
  }
  return Result.succeed(undefined)
}

// Tokens of fill-in-the-middle prompts.
const fillTexts: ReadonlySet<string> = new Set(
  ["PRE", "SUF", "MID"].flatMap((name) => [`<${name}>`, `\u2581<${name}>`]).concat(
    ["prefix", "suffix", "middle", "pad"].flatMap((name) => [`<fim_${name}>`, `<|fim_${name}|>`])
  )
)

const trimmed: RegExp = /phi-?3/i
const notTrimmed: ReadonlySet<string> = new Set(["<unk>", "<s>", "<|endoftext|>"])

const sentencePiece = (metadata: Metadata): Result.Result<Vocabulary, TokenizerError> =>
  Result.gen(function*() {
    const texts = yield* required(metadata, "tokenizer.ggml.tokens", strings)
    const tokens = texts.map((text, id) => text === "" ? `[EMPTY_${id}]` : text)
    const scores = yield* optional(metadata, "tokenizer.ggml.scores", numbersOf(tokens.length))
    const types = yield* optional(metadata, "tokenizer.ggml.token_type", typesOf(tokens.length, 0))
    const kinds = tokens.map((text, id): Kind =>
      endTexts.has(text) || fillTexts.has(text) ? "control" : types?.[id] ?? "normal"
    )
    yield* checkDiffering(tokens, kinds)
    const ids = yield* meaningsOf(metadata, tokens)
    const prefix = yield* optional(metadata, "tokenizer.ggml.add_space_prefix", boolean)
    const isTrimmed = trimmed.test((yield* optional(metadata, "general.name", string)) ?? "")
    const orFirst = (id: number | undefined, usual: number): number | undefined =>
      id ?? (usual < tokens.length ? usual : undefined)
    const eos = orFirst(ids.eos, 2)
    return {
      ...ids,
      tokens,
      kinds,
      merges: [],
      preTokenizer: noPreTokenizer,
      pieces: {
        scores: scores ?? new Float32Array(tokens.length),
        addSpacePrefix: prefix ?? true,
        trimsBehind: (special) => isTrimmed && !notTrimmed.has(special)
      },
      bos: orFirst(ids.bos, 1),
      eos,
      unknown: orFirst(ids.unknown, 0),
      addBos: ids.addBos ?? true,
      addEos: ids.addEos ?? false,
      eog: eos === undefined ? ids.eog : new Set([...ids.eog, eos].toSorted((a, b) => a - b))
    }
  })

/** The ids with a meaning, and whether bos and eos are added, as far as the file says. */
const meaningsOf = (metadata: Metadata, tokens: ReadonlyArray<string>) =>
  Result.gen(function*() {
    const token = (name: string) => optional(metadata, `tokenizer.ggml.${name}_token_id`, idBelow(tokens.length))
    const bos = yield* token("bos")
    const eos = yield* token("eos")
    const ends: Array<number> = []
    for (const key of endKeys) ends.push(...[yield* token(key)].filter((id) => id !== undefined))
    const byText = new Map(tokens.flatMap((text, id) => endTexts.has(text) ? [[text, id] as const] : []))
    const named = [...endTexts].map((text) => byText.get(text)).filter((id) => id !== undefined)
    return {
      bos,
      eos,
      eot: (yield* token("eot")) ?? named[0],
      unknown: yield* token("unknown"),
      padding: yield* token("padding"),
      addBos: yield* optional(metadata, "tokenizer.ggml.add_bos_token", boolean),
      addEos: yield* optional(metadata, "tokenizer.ggml.add_eos_token", boolean),
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

// a heap entry holds a rank and a position in one float64
const mostMerges = 2 ** 21

const mergeList: Reader<ReadonlyArray<string>> = {
  expected: `an array of at most ${mostMerges} strings`,
  read: (value) => {
    const found = strings.read(value)
    return found !== undefined && found.length <= mostMerges ? found : undefined
  }
}

const idBelow = (count: number): Reader<number> => ({
  expected: `a token id below ${count}`,
  read: (value) =>
    typeof value === "number" && Number.isInteger(value) && value >= 0 && value < count ? value : undefined
})

const numbersOf = (count: number): Reader<Float32Array> => ({
  expected: `${count} numbers`,
  read: (value) =>
    isNumbers(value) && value.length === count &&
      Array.from(value).every((item) => typeof item === "number" && !Number.isNaN(item))
      ? Float32Array.from(value)
      : undefined
})

const typesOf = (count: number, least = 1): Reader<ReadonlyArray<Kind>> => ({
  expected: `${count} token types from ${least} to 6`,
  read: (value) => {
    if (!isNumbers(value) || value.length !== count) return undefined
    const kinds = Array.from(value, (type) => type === 0 && least === 0 ? "undefined" as const : kindNames[type - 1])
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
