/** Text to token ids and back: byte-level BPE or SentencePiece, as the metadata of a model file describes it. */
import { Context, Result } from "effect"
import { merge, type Workspace, workspace } from "./internal/bpe.ts"
import { fromLetters, join, letters, readUtf8, writeUtf8 } from "./internal/bytes.ts"
import * as Merges from "./internal/merges.ts"
import * as Spm from "./internal/spm.ts"
import { split } from "./PreTokenizer.ts"
import { cut, type Segment } from "./Segment.ts"
import { clip, InvalidMetadata, type TokenizerError } from "./TokenizerError.ts"
import { isSpecial, make as makeVocabulary, type Metadata, type Pieces, type Vocabulary } from "./Vocabulary.ts"

/** How to read a text. */
export interface EncodeOptions {
  /** Put bos in front and eos at the end, where the vocabulary asks for them. Default: no. */
  readonly addSpecial?: boolean | undefined
  /** Recognise control and unknown tokens in the text; user-defined ones always are. Default: no. */
  readonly parseSpecial?: boolean | undefined
}

/** How to print tokens. */
export interface DecodeOptions {
  /** Print control and unknown tokens as their text. Default: they print nothing. */
  readonly printSpecial?: boolean | undefined
  /** Leave out bos in front and eos at the end, where encoding adds them. Of whole texts. Default: no. */
  readonly removeSpecial?: boolean | undefined
}

/** A tokenizer: pure functions over one vocabulary. A lone surrogate in a text counts as U+FFFD. */
export interface Codec {
  readonly vocabulary: Vocabulary
  /** Special tokens by text, the longest text (in bytes) first: the order in which a text is cut at them. */
  readonly specials: ReadonlyMap<string, number>
  readonly encode: (text: string, options?: EncodeOptions) => ReadonlyArray<number>
  /**
   * Encodes segments without adding bos or eos. Text never becomes a control or user-defined token, except for user-defined tokens of
   * white space alone in SentencePiece vocabularies. A special segment that names no special token is text.
   */
  readonly encodeSegments: (segments: ReadonlyArray<Segment>) => ReadonlyArray<number>
  /**
   * The text of a whole sequence. A SentencePiece vocabulary that puts a space in front of texts loses it here; a
   * `Decoder`, which continues a text, and `bytesOf` keep it.
   */
  readonly decode: (ids: ReadonlyArray<number>, options?: DecodeOptions) => string
  /** The bytes a token prints: maybe part of a UTF-8 sequence, and none for an id that is no token. */
  readonly bytesOf: (id: number, options?: DecodeOptions) => Uint8Array
}

/** Reads a tokenizer from the keys `tokenizer.ggml.*` of a model file. */
export const make = (metadata: Metadata): Result.Result<Codec, TokenizerError> =>
  Result.flatMap(makeVocabulary(metadata), fromVocabulary)

/** Builds a tokenizer for a checked vocabulary. */
export const fromVocabulary = (vocabulary: Vocabulary): Result.Result<Codec, InvalidMetadata> => {
  const specials = specialsOf(vocabulary)
  if (vocabulary.pieces !== undefined) return Result.succeed(fromPieces(vocabulary, vocabulary.pieces, specials))
  const always = new Map([...specials].filter(([, id]) => vocabulary.kinds[id] === "user-defined"))
  const model = modelOf(vocabulary, new Set(specials.keys()))
  if ("index" in model) {
    const found = JSON.stringify(clip(vocabulary.merges[model.index]!))
    return Result.fail(
      new InvalidMetadata({ key: `tokenizer.ggml.merges[${model.index}]`, expected: "two texts and a space", found })
    )
  }

  const add = (segment: Segment, ids: Array<number>): void => {
    const id = segment.type === "special" ? specials.get(segment.text) : undefined
    if (id === undefined) encodeText(model, segment.text, ids)
    else ids.push(id)
  }

  const bytesOf = (id: number, options?: DecodeOptions): Uint8Array => {
    const text = vocabulary.tokens[id]
    const kind = vocabulary.kinds[id]
    if (text === undefined || kind === undefined) return new Uint8Array(0)
    if (kind === "user-defined") return new TextEncoder().encode(text)
    if (!isSpecial(kind)) return fromLetters(text)
    return options?.printSpecial === true ? new TextEncoder().encode(text) : new Uint8Array(0)
  }

  return Result.succeed({
    vocabulary,
    specials,
    bytesOf,
    encode: (text, options) => {
      const { addBos, addEos, bos, eos } = vocabulary
      const marks = options?.parseSpecial === true ? specials : always
      const ids: Array<number> = []
      if (options?.addSpecial === true && addBos && bos !== undefined) ids.push(bos)
      for (const segment of cut(text.toWellFormed(), [...marks.keys()])) add(segment, ids)
      if (options?.addSpecial === true && addEos && eos !== undefined) ids.push(eos)
      return ids
    },
    encodeSegments: (segments) => {
      const ids: Array<number> = []
      for (const segment of segments) add({ ...segment, text: segment.text.toWellFormed() }, ids)
      return ids
    },
    decode: (ids, options) => readUtf8(join(withoutEnds(vocabulary, ids, options).map((id) => bytesOf(id, options))))
  })
}

const withoutEnds = (
  { addBos, addEos, bos, eos }: Vocabulary,
  ids: ReadonlyArray<number>,
  options: DecodeOptions | undefined
): ReadonlyArray<number> => {
  if (options?.removeSpecial !== true) return ids
  const first = addBos && ids[0] === bos ? 1 : 0
  return ids.slice(first, addEos && ids.length > first && ids.at(-1) === eos ? -1 : undefined)
}

const fromPieces = (vocabulary: Vocabulary, pieces: Pieces, specials: ReadonlyMap<string, number>): Codec => {
  const model = Spm.make(vocabulary, pieces)
  const always = [...specials].filter(([, id]) => vocabulary.kinds[id] === "user-defined").map(([text]) => text)
  const blanks = Spm.blankMarks(vocabulary)
  const special = (text: string): number | undefined => specials.get(text)
  return {
    vocabulary,
    specials,
    bytesOf: (id, options) => Spm.bytesOf(vocabulary, id, options?.printSpecial === true),
    encode: (text, options) => {
      const { addBos, addEos, bos, eos } = vocabulary
      const marks = options?.parseSpecial === true ? [...specials.keys()] : always
      const ids = Spm.encodeSegments(model, cut(text.toWellFormed(), marks), special)
      const isWhole = options?.addSpecial === true
      return [
        ...(isWhole && addBos && bos !== undefined ? [bos] : []),
        ...ids,
        ...(isWhole && addEos && eos !== undefined ? [eos] : [])
      ]
    },
    encodeSegments: (segments) =>
      Spm.encodeSegments(
        model,
        Spm.cutBlanks(segments.map((segment) => ({ ...segment, text: segment.text.toWellFormed() })), blanks),
        special
      ),
    decode: (ids, { printSpecial = false, removeSpecial = false } = {}) =>
      Spm.decode(model, ids, { printSpecial, removeSpecial })
  }
}

/** The service that makes tokenizers. */
export interface Making {
  /** The tokenizer of a model file. */
  readonly make: (metadata: Metadata) => Result.Result<Codec, TokenizerError>
}

/** The maker of tokenizers: `make`, unless a Layer replaces it. */
export const Tokenizer = Context.Reference<Making>("@tg/tokenizer/Tokenizer", { defaultValue: () => ({ make }) })

const specialsOf = ({ kinds, tokens }: Vocabulary): ReadonlyMap<string, number> => {
  const encoder = new TextEncoder()
  const found: Array<readonly [text: string, id: number, length: number]> = []
  for (const [id, text] of tokens.entries()) {
    if (text !== "" && isSpecial(kinds[id]!)) found.push([text, id, encoder.encode(text).length])
  }
  return new Map(found.toSorted((a, b) => b[2] - a[2] || a[1] - b[1]).map(([text, id]) => [text, id]))
}

/** The tables for encoding ordinary text. */
interface Model {
  readonly vocabulary: Vocabulary
  readonly symbols: ReadonlyMap<string, number>
  readonly merges: Merges.Merges
  /** The symbol of each byte; -2 if it is neither a token nor in a merge. */
  readonly byteSymbols: Int32Array
  readonly work: Workspace
}

const modelOf = (vocabulary: Vocabulary, forbidden: ReadonlySet<string>): Model | Merges.Malformed => {
  const { kinds, tokens } = vocabulary
  const symbols = new Map<string, number>()
  for (let id = 0; id < tokens.length; id++) {
    if (!isSpecial(kinds[id]!)) symbols.set(tokens[id]!, id)
  }
  const merges = Merges.make(vocabulary.merges, symbols, { forbidden, firstFree: tokens.length })
  if ("index" in merges) return merges
  const byteSymbols = Int32Array.from(letters, (letter) => symbols.get(letter) ?? -2)
  return { vocabulary, symbols, merges, byteSymbols, work: workspace(keptBytes) }
}

// The work space of longer pieces is not reused.
const keptBytes = 4096

const encodeText = (model: Model, text: string, ids: Array<number>): void => {
  const { preTokenizer } = model.vocabulary
  for (const piece of split(text, preTokenizer)) encodePiece(model, piece, ids)
}

const encodePiece = (model: Model, piece: string, ids: Array<number>): void => {
  const { byteSymbols, merges, symbols, vocabulary } = model
  const work = piece.length * 3 <= keptBytes ? model.work : workspace(piece.length * 3)
  const { bytes, start, symbol } = work
  const length = writeUtf8(piece, bytes)
  const isToken = (one: number): boolean => one >= 0 && one < vocabulary.tokens.length
  if (vocabulary.preTokenizer.ignoreMerges) {
    let mapped = ""
    for (let i = 0; i < length; i++) mapped += letters[bytes[i]!]!
    const whole = symbols.get(mapped)
    if (whole !== undefined && isToken(whole)) {
      ids.push(whole)
      return
    }
  }
  for (let i = 0; i < length; i++) symbol[i] = byteSymbols[bytes[i]!]!
  const count = merge(merges, work, length)
  for (let i = 0; i < count; i++) {
    if (isToken(symbol[i]!)) {
      ids.push(symbol[i]!)
      continue
    }
    for (let at = start[i]!; at < start[i + 1]!; at++) {
      const byte = byteSymbols[bytes[at]!]!
      if (isToken(byte)) ids.push(byte)
      else if (vocabulary.unknown !== undefined) ids.push(vocabulary.unknown)
    }
  }
}
