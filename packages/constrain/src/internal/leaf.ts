/** From DFAs over characters to DFAs over bytes: plain UTF-8, or JSON strings with their quotes and escapes. */
import * as CharDfa from "./charDfa.ts"
import { type Counter, type Leaf } from "./rule.ts"

/** Edges of a byte state under construction: by range, to a state of the automaton or to further edges. */
type Edges = Map<string, { readonly low: number; readonly high: number; readonly to: number | Edges }>

const quote = 0x22

/** Bytes, each from a range. */
type ByteRanges = ReadonlyArray<readonly [low: number, high: number]>

/** The UTF-8 sequences of a range of characters, as products of byte ranges. */
export const utf8Ranges = (low: number, high: number): ReadonlyArray<ByteRanges> => {
  const limits = [0x7f, 0x7ff, 0xffff, 0x10ffff]
  for (const limit of limits) {
    if (low <= limit && limit < high) return [...utf8Ranges(low, limit), ...utf8Ranges(limit + 1, high)]
  }
  if (high <= 0x7f) return [[[low, high]]]
  const length = high <= 0x7ff ? 2 : high <= 0xffff ? 3 : 4
  // split until all trailing bytes run through their whole range, or are one
  for (let i = 1; i < length; i++) {
    const mask = (1 << (6 * i)) - 1
    if ((low & ~mask) === (high & ~mask)) continue
    if ((low & mask) !== 0) return [...utf8Ranges(low, low | mask), ...utf8Ranges((low | mask) + 1, high)]
    if ((high & mask) !== mask) return [...utf8Ranges(low, (high & ~mask) - 1), ...utf8Ranges(high & ~mask, high)]
  }
  const [from, to] = [encode(low, length), encode(high, length)]
  return [from.map((byte, i) => [byte, to[i]!] as const)]
}

const leads = [0, 0, 0xc0, 0xe0, 0xf0]

const encode = (codePoint: number, length: number): ReadonlyArray<number> =>
  Array.from({ length }, (_, i) => {
    const bits = codePoint >> (6 * (length - 1 - i))
    return i === 0 ? leads[length]! | bits : 0x80 | (bits & 0x3f)
  })

const shortEscapes: Readonly<Record<number, string>> = {
  8: "\\b",
  9: "\\t",
  10: "\\n",
  12: "\\f",
  13: "\\r",
  34: "\\\"",
  92: "\\\\"
}

/** How JSON.stringify writes a range of characters inside of a string. */
const jsonRanges = (low: number, high: number): ReadonlyArray<ByteRanges> => {
  const found: Array<ByteRanges> = []
  let from = low
  for (let c = low; c <= Math.min(high, 0x5c); c++) {
    if (c >= 0x20 && c !== quote && c !== 0x5c) continue
    if (from < c) found.push(...utf8Ranges(from, c - 1))
    const escape = shortEscapes[c] ?? `\\u${c.toString(16).padStart(4, "0")}`
    found.push(Array.from(escape, (char) => [char.charCodeAt(0), char.charCodeAt(0)] as const))
    from = c + 1
  }
  if (from <= high) found.push(...utf8Ranges(from, high))
  return found
}

const insert = (edges: Edges, sequence: ByteRanges, to: number): void => {
  let at = edges
  sequence.forEach(([low, high], i) => {
    const key = `${low}-${high}`
    const known = at.get(key)
    if (i === sequence.length - 1) at.set(key, { low, high, to })
    else if (known !== undefined && typeof known.to !== "number") at = known.to
    else {
      const inner: Edges = new Map()
      at.set(key, { low, high, to: inner })
      at = inner
    }
  })
}

/** One state's edges, all targets being states. */
type Row = ReadonlyArray<readonly [low: number, high: number, target: number]>

/** The rows of all byte states: those of the characters first, then those inside of a character, shared where equal. */
const rowsOf = (
  dfa: CharDfa.CharDfa,
  live: (state: number) => boolean,
  spell: (low: number, high: number) => ReadonlyArray<ByteRanges>
): Array<Row> => {
  const count = dfa.accept.length
  const rows: Array<Row> = Array.from({ length: count }, () => [])
  const known = new Map<string, number>()
  const resolve = (edges: Edges): Row =>
    [...edges.values()].map(({ high, low, to }) => [low, high, typeof to === "number" ? to : inner(to)] as const)
  const inner = (edges: Edges): number => {
    const row = resolve(edges)
    const key = row.join(";")
    const found = known.get(key)
    if (found !== undefined) return found
    if (rows.length >= 16 * CharDfa.maxStates) throw new CharDfa.TooManyStates(16 * CharDfa.maxStates)
    known.set(key, rows.length)
    return rows.push(row) - 1
  }
  const spelled = dfa.starts.map((low, i) =>
    low === 0xd800 ? [] : spell(low, i + 1 < dfa.starts.length ? dfa.starts[i + 1]! - 1 : 0x10ffff)
  )
  for (let state = 0; state < count; state++) {
    if (!live(state)) continue
    let edges: Edges | undefined
    const single: Array<Row[number]> = []
    for (let i = 0; i < spelled.length; i++) {
      const target = dfa.next[state * dfa.width + dfa.classes[i]!]!
      if (!live(target)) continue
      for (const sequence of spelled[i]!) {
        const [first] = sequence
        if (sequence.length === 1) single.push([first![0], first![1], target])
        else insert(edges ??= new Map(), sequence, target)
      }
    }
    rows[state] = edges === undefined ? single : [...single, ...resolve(edges)]
  }
  return rows
}

/** A leaf of these rows, with state 0 at the start. */
const pack = (name: string, rows: ReadonlyArray<Row>, accept: Uint8Array, counter: Counter | undefined): Leaf => {
  const cuts = new Set<number>([0])
  for (const row of rows) for (const [low, high] of row) cuts.add(low).add(high + 1)
  const starts = [...cuts].filter((at) => at < 256).sort((a, b) => a - b)
  const classOf = new Uint8Array(256)
  starts.forEach((start, i) => classOf.fill(i, start))
  const width = starts.length
  const next = new Int32Array(rows.length * width).fill(-1)
  rows.forEach((row, state) => {
    for (const [low, high, target] of row) {
      for (let c = classOf[low]!; c <= classOf[high]!; c++) next[state * width + c] = target
    }
  })
  return { _tag: "Leaf", name, classOf, width, next, accept, counter }
}

/** The texts of the language in UTF-8; undefined if there are none. */
export const ofText = (name: string, dfa: CharDfa.CharDfa): Leaf | undefined => {
  const distance = CharDfa.distances(dfa)
  if (distance[0] === Infinity) return undefined
  const rows = rowsOf(dfa, (state) => distance[state] !== Infinity, utf8Ranges)
  const accept = new Uint8Array(rows.length)
  accept.set(dfa.accept)
  return pack(name, rows, accept, undefined)
}

/** Bounds for the number of characters that are counted, not spelled out in states. */
export interface Bounds {
  readonly min: number
  readonly max: number
}

/**
 * The texts of the language as JSON strings, quotes included, as JSON.stringify writes them; undefined if there are none. A
 * least number of characters may only be given with the language of all texts.
 */
export const ofJsonString = (
  name: string,
  dfa: CharDfa.CharDfa,
  bounds: Bounds = { min: 0, max: Infinity }
): Leaf | undefined => {
  const distance = CharDfa.distances(dfa)
  const plain = CharDfa.isAll(dfa)
  if (distance[0] === Infinity || distance[0]! > bounds.max || bounds.min > bounds.max) return undefined
  if (bounds.min > 0 && !plain) throw new Error("a counted minimum needs the language of all texts")
  const inner = rowsOf(dfa, (state) => distance[state] !== Infinity, jsonRanges)
  // state 0 is before the opening quote, the last one after the closing quote, all others move up by one
  const end = inner.length + 1
  const rows: Array<Row> = [
    [[quote, quote, 1]],
    ...inner.map((row, state): Row => {
      const moved = row.map(([low, high, target]) => [low, high, target + 1] as const)
      return dfa.accept[state] === 1 ? [...moved, [quote, quote, end]] : moved
    }),
    []
  ]
  const accept = new Uint8Array(rows.length)
  accept[end] = 1
  if (bounds.min === 0 && bounds.max === Infinity) return pack(name, rows, accept, undefined)
  const boundary = new Uint8Array(rows.length).fill(1, 1, dfa.accept.length + 1)
  const needed = new Float64Array(rows.length)
  needed.set(distance, 1)
  // a state inside of a character needs what the nearest of its characters needs; rows of inner states follow their targets
  for (let state = dfa.accept.length; state < inner.length; state++) {
    needed[state + 1] = Math.min(...inner[state]!.map(([, , target]) => needed[target + 1]!))
  }
  const slack = needed.reduce((most, one) => one === Infinity ? most : Math.max(most, one), 0)
  return pack(name, rows, accept, { boundary, distance: needed, slack, min: bounds.min, max: bounds.max, plain })
}
