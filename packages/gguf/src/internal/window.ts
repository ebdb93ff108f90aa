/**
 * A pull parser's view of a file: the bytes from the current position to the end of the last chunk. A parser is a
 * generator that asks for ranges (`Need`) or gives up with an error, after which it is not resumed.
 *
 *     start            start + at                  start + bytes.length          size
 *       |  consumed       |  available                   |  not yet requested       |
 */
import { type GgufError, InvalidText, TooLarge, Truncated } from "../GgufError.ts"

/** Ask for exactly `length` bytes of the file. */
export interface Need {
  readonly _tag: "Need"
  readonly offset: number
  readonly length: number
}

export type Pull<A> = Generator<Need | GgufError, A, Uint8Array>

export interface Window {
  readonly file: string
  readonly size: number
  readonly chunkBytes: number
  readonly maxHeaderBytes: number
  start: number
  at: number
  bytes: Uint8Array
  view: DataView
}

export const make = (file: string, size: number, limits: { chunkBytes: number; maxHeaderBytes: number }): Window => ({
  file,
  size,
  ...limits,
  start: 0,
  at: 0,
  bytes: new Uint8Array(0),
  view: new DataView(new ArrayBuffer(0))
})

export const position = (w: Window): number => w.start + w.at
export const available = (w: Window): number => w.bytes.length - w.at
export const remaining = (w: Window): number => w.size - position(w)

/** A name as errors show it: in a damaged file it can be as long as the file. */
export const shown = (name: string): string => name.length <= 200 ? name : `${name.slice(0, 200)}…`

export function* fail(error: GgufError): Generator<GgufError, never, Uint8Array> {
  yield error
  throw new Error("a parser that failed was resumed")
}

/** Afterwards `length` bytes are available. The window holds at most one chunk more than the largest request. */
export function* fill(w: Window, length: number, reading: string): Pull<void> {
  const has = available(w)
  if (has >= length) return
  if (length > remaining(w)) {
    return yield* fail(
      new Truncated({ file: w.file, reading, offset: position(w), needed: length, available: remaining(w) })
    )
  }
  yield* reserve(w, length, reading)
  const offset = w.start + w.bytes.length
  const most = Math.min(w.size, w.maxHeaderBytes) - offset
  const more = yield { _tag: "Need", offset, length: Math.min(Math.max(length - has, w.chunkBytes), most) }
  const bytes = has === 0 ? more : concatenate(w.bytes.subarray(w.at), more)
  w.start = position(w)
  w.at = 0
  w.bytes = bytes
  w.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/** Checks that `length` more bytes keep the header below the limit, before anything of that size is allocated. */
export function* reserve(w: Window, length: number, reading: string): Pull<void> {
  if (position(w) + length > w.maxHeaderBytes) {
    yield* fail(tooLarge(w, reading, "beyond-limit", length, w.maxHeaderBytes))
  }
}

export function* u8(w: Window, reading: string): Pull<number> {
  yield* fill(w, 1, reading)
  return w.bytes[w.at++]!
}

export function* u32(w: Window, reading: string): Pull<number> {
  yield* fill(w, 4, reading)
  w.at += 4
  return w.view.getUint32(w.at - 4, true)
}

export function* u64(w: Window, reading: string): Pull<bigint> {
  yield* fill(w, 8, reading)
  w.at += 8
  return w.view.getBigUint64(w.at - 8, true)
}

/** A u64 below 2^53: an offset or a dimension. */
export function* safeU64(w: Window, reading: string): Pull<number> {
  const value = yield* u64(w, reading)
  if (value > Number.MAX_SAFE_INTEGER) {
    return yield* fail(tooLarge(w, reading, "beyond-2^53", value, Number.MAX_SAFE_INTEGER))
  }
  return Number(value)
}

/** A u64 that counts things of at least `bytesEach` bytes which follow in the file; no model has more than `most`. */
export function* count(w: Window, bytesEach: number, reading: string, most = Infinity): Pull<number> {
  const value = yield* safeU64(w, reading)
  const limit = Math.floor(remaining(w) / bytesEach)
  if (value > limit) return yield* fail(tooLarge(w, reading, "beyond-file", value, limit))
  if (value > most) return yield* fail(tooLarge(w, reading, "implausible", value, most))
  return value
}

export function* string(w: Window, reading: string): Pull<string> {
  const length = yield* count(w, 1, `the length of ${reading}`)
  yield* fill(w, length, reading)
  const text = decode(w.bytes, w.at, length)
  if (text === undefined) return yield* fail(new InvalidText({ file: w.file, reading, offset: position(w) }))
  w.at += length
  return text
}

export function* strings(w: Window, reading: string): Pull<Array<string>> {
  const total = yield* count(w, 8, `the number of strings in ${reading}`)
  const out: Array<string> = []
  while (out.length < total) {
    takeStrings(w, out, total)
    // The string that stopped the plain loop straddles the window's end, or is invalid.
    if (out.length < total) out.push(yield* string(w, `string ${out.length} of ${reading}`))
  }
  return out
}

/** Takes strings as long as they lie inside the window and are valid, without a step of the generator. */
const takeStrings = (w: Window, out: Array<string>, total: number): void => {
  const { bytes, view } = w
  const end = bytes.length
  let at = w.at
  while (out.length < total && end - at >= 8) {
    const length = view.getUint32(at, true) + view.getUint32(at + 4, true) * 2 ** 32
    if (length > end - at - 8) break
    const text = decode(bytes, at + 8, length)
    if (text === undefined) break
    out.push(text)
    at += 8 + length
  }
  w.at = at
}

/** Copies the next bytes of the file into `target`, chunk by chunk. */
export function* copy(w: Window, target: Uint8Array, reading: string): Pull<void> {
  let filled = 0
  while (filled < target.length) {
    yield* fill(w, 1, reading)
    const length = Math.min(available(w), target.length - filled)
    target.set(w.bytes.subarray(w.at, w.at + length), filled)
    w.at += length
    filled += length
  }
}

// A byte order mark is part of a token, not of the encoding.
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const decode = (bytes: Uint8Array, at: number, length: number): string | undefined => {
  try {
    return decoder.decode(bytes.subarray(at, at + length))
  } catch {
    return undefined
  }
}

const concatenate = (a: Uint8Array, b: Uint8Array): Uint8Array => {
  const out = new Uint8Array(a.length + b.length)
  out.set(a)
  out.set(b, a.length)
  return out
}

const tooLarge = (
  w: Window,
  reading: string,
  problem: TooLarge["problem"],
  found: number | bigint,
  limit: number
): TooLarge => new TooLarge({ file: w.file, reading, offset: position(w), problem, found: String(found), limit })
