/**
 * SentencePiece BPE: neighbouring symbols are merged while their text is a piece, the piece with the highest score first. There is no
 * pre-tokenization. A piece is reached only by way of smaller pieces.
 */
import { join, readUtf8 } from "./bytes.ts"
import { pop, push } from "./heap.ts"
import { cut, type Segment } from "../Segment.ts"
import { isSpecial, type Kind, type Pieces, type Vocabulary } from "../Vocabulary.ts"

/** How a space is written in a piece. */
const mark = "\u2581"

/** The tables of a vocabulary of pieces. */
export interface Model {
  readonly vocabulary: Vocabulary
  readonly pieces: Pieces
  /** Pieces by text. Control, unknown and byte tokens are none: text never becomes one of them. */
  readonly ids: ReadonlyMap<string, number>
  /** The rank of each token by score, the highest first. */
  readonly rank: Int32Array
  /** Length of the longest piece. */
  readonly longest: number
  /** The token of each byte, or -1. */
  readonly bytes: Int32Array
}

/** The text of an id that prints exactly one byte. */
export const byteOf = (text: string): number | undefined => {
  const digits = /^<0x([0-9A-F]{2})>$/.exec(text)?.[1]
  return digits === undefined ? undefined : Number.parseInt(digits, 16)
}

const isPiece = (kind: Kind): boolean => kind !== "control" && kind !== "unknown" && kind !== "byte"

/** Prepares a vocabulary of pieces. */
export const make = (vocabulary: Vocabulary, pieces: Pieces): Model => {
  const { kinds, tokens } = vocabulary
  const ids = new Map<string, number>()
  const bytes = new Int32Array(256).fill(-1)
  let longest = 0
  for (let id = tokens.length - 1; id >= 0; id--) {
    const text = tokens[id]!
    const byte = byteOf(text)
    if (byte !== undefined) bytes[byte] = id
    if (byte !== undefined && kinds[id] === "byte" || !isPiece(kinds[id]!)) continue
    ids.set(text, id)
    longest = Math.max(longest, text.length)
  }
  const order = Array.from(new Set(pieces.scores)).sort((a, b) => b - a)
  const ranks = new Map(order.map((score, i) => [score, i]))
  return { vocabulary, pieces, ids, longest, bytes, rank: Int32Array.from(pieces.scores, (score) => ranks.get(score)!) }
}

// A heap entry is rank * 2^32 + position: exact, and sorted by score, then from the left.
const positions = 2 ** 32

/** Appends the tokens of a text in which spaces are marked. */
const encodeStretch = (model: Model, text: string, ids: Array<number>): void => {
  const letters = Array.from(text)
  const count = letters.length
  const start = new Int32Array(count + 1)
  for (let i = 0; i < count; i++) start[i + 1] = start[i]! + letters[i]!.length
  // symbol i covers the letters from i to next[i]; `pair` is the piece of it and the symbol behind it, or -1
  const next = Int32Array.from({ length: count }, (_, i) => i + 1)
  const previous = Int32Array.from({ length: count }, (_, i) => i - 1)
  const pair = new Int32Array(count)
  /** Where unused pieces were merged, to split them again. */
  const joints = new Map<number, ReadonlyArray<number>>()
  const heap = new Float64Array(3 * count)
  let size = 0
  const find = (at: number): void => {
    const after = next[at]!
    const end = after < count ? start[next[after]!]! : -1
    const isShort = end >= 0 && end - start[at]! <= model.longest
    const id = isShort ? model.ids.get(text.slice(start[at]!, end)) ?? -1 : -1
    pair[at] = id
    if (id >= 0) size = push(heap, size, model.rank[id]! * positions + at)
  }
  for (let i = 0; i < count; i++) find(i)
  while (size > 0) {
    const key = heap[0]!
    size = pop(heap, size)
    const at = key % positions
    const id = pair[at]!
    if (id < 0 || model.rank[id] !== (key - at) / positions) continue // the pair has changed since
    const gone = next[at]!
    const after = next[gone]!
    if (model.vocabulary.kinds[id] === "unused") joints.set(at, [...joints.get(at) ?? [], gone])
    pair[gone] = -1
    next[at] = after
    if (after < count) previous[after] = at
    find(at)
    if (previous[at]! >= 0) find(previous[at]!)
  }
  for (let at = 0; at < count; at = next[at]!) emit(model, { text, start, joints }, [at, next[at]!], ids)
}

interface Joined {
  readonly text: string
  readonly start: Int32Array
  readonly joints: ReadonlyMap<number, ReadonlyArray<number>>
}

/** The token of a symbol; of a piece that is unused, its parts; else its bytes. */
const emit = (model: Model, joined: Joined, [from, to]: readonly [number, number], ids: Array<number>): void => {
  const { joints, start, text } = joined
  const symbol = text.slice(start[from]!, start[to]!)
  const id = model.ids.get(symbol)
  if (id !== undefined && model.vocabulary.kinds[id] !== "unused") {
    ids.push(id)
    return
  }
  const joint = joints.get(from)?.findLast((at) => at < to)
  if (id !== undefined && joint !== undefined) {
    emit(model, joined, [from, joint], ids)
    emit(model, joined, [joint, to], ids)
    return
  }
  const { unknown } = model.vocabulary
  for (const byte of new TextEncoder().encode(symbol)) {
    // without a token for the byte, one whose text is that byte: only ASCII is one byte in UTF-8
    const letter = byte < 0x80 ? model.ids.get(String.fromCharCode(byte)) : undefined
    const own = model.bytes[byte]! >= 0 ? model.bytes[byte] : letter
    if (own !== undefined) ids.push(own)
    else if (unknown !== undefined) ids.push(unknown)
  }
}

const whiteSpace = /^[ \t\n\v\f\r]+/

/** Appends the tokens of segments: a space goes in front of what begins the text or follows a special token. */
export const encodeSegments = (
  model: Model,
  segments: ReadonlyArray<Segment>,
  special: (text: string) => number | undefined
): ReadonlyArray<number> => {
  const { addSpacePrefix, trimsBehind } = model.pieces
  const ids: Array<number> = []
  let before: string | undefined = ""
  let stretch: string | undefined
  const flush = (): void => {
    if (stretch !== undefined && stretch !== "") encodeStretch(model, stretch.replaceAll(" ", mark), ids)
    stretch = undefined
  }
  for (const segment of segments) {
    const id = segment.type === "special" ? special(segment.text) : undefined
    if (id !== undefined) {
      flush()
      ids.push(id)
      before = segment.text
      continue
    }
    const text: string = stretch === undefined && before !== "" && trimsBehind(before)
      ? segment.text.replace(whiteSpace, "")
      : segment.text
    if (text !== "") stretch = stretch === undefined && addSpacePrefix ? ` ${text}` : (stretch ?? "") + text
  }
  flush()
  return ids
}

/**
 * User-defined tokens of white space, of which such vocabularies have many. They carry no meaning but their text, so text is split at
 * them too.
 */
export const blankMarks = ({ kinds, tokens }: Vocabulary): ReadonlyArray<string> =>
  tokens.filter((text, id) => kinds[id] === "user-defined" && text.trim() === "" && text !== "")
    .sort((a, b) => b.length - a.length)

/** Cuts the text of segments at blank marks. */
export const cutBlanks = (segments: ReadonlyArray<Segment>, marks: ReadonlyArray<string>): ReadonlyArray<Segment> =>
  marks.length === 0
    ? segments
    : segments.flatMap((segment) => segment.type === "text" ? cut(segment.text, marks) : [segment])

/** The bytes a token prints. */
export const bytesOf = (vocabulary: Vocabulary, id: number, printSpecial: boolean): Uint8Array => {
  const text = vocabulary.tokens[id]
  const kind = vocabulary.kinds[id]
  const encoder = new TextEncoder()
  if (text === undefined || kind === undefined || kind === "unused" || kind === "undefined") {
    return new Uint8Array(0)
  }
  if (kind === "user-defined" || isSpecial(kind) && printSpecial) return encoder.encode(text)
  if (isSpecial(kind)) return new Uint8Array(0)
  const byte = kind === "byte" ? byteOf(text) : undefined
  return byte === undefined ? encoder.encode(text.replaceAll(mark, " ")) : Uint8Array.of(byte)
}

/** A whole text: without the space that encoding put in front of it. */
export const decode = (
  { pieces, vocabulary }: Model,
  ids: ReadonlyArray<number>,
  options: { readonly printSpecial: boolean; readonly removeSpecial: boolean }
): string => {
  const { addBos, addEos, bos, eos } = vocabulary
  const hasBos = options.removeSpecial && addBos && ids.length > 0 && ids[0] === bos
  const rest = hasBos ? ids.slice(1) : ids
  const hasEos = options.removeSpecial && addEos && rest.length > 0 && rest.at(-1) === eos
  const parts = (hasEos ? rest.slice(0, -1) : rest).map((id) => bytesOf(vocabulary, id, options.printSpecial))
  const [first] = parts
  if (pieces.addSpacePrefix && !hasBos && first?.[0] === 0x20) parts[0] = first.subarray(1)
  return readUtf8(join(parts))
}
