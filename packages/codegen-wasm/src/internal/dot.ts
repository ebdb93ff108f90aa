/** Sums of products of bytes: DOT4I8, alone and added up. */
import type { UOp } from "@tg/core-uop/UOp"
import type { Body } from "./elementwise.ts"
import { constantOf, shuffle, uniform } from "./value.ts"

/**
 * How vectors of bytes are multiplied: without relaxed SIMD; with its instruction that adds four products to a word; or
 * with the one that adds two products to 16 bits, which are added up there as long as they fit. All give the same
 * numbers. `words` is for processors that have such an instruction, `pairs` for those that make it of the other one.
 */
export type Simd = "plain" | "words" | "pairs"

/** The bits that may be set in the 32 bits of an integer, or in some lane of a vector of them. */
const possibleBits = (node: UOp): number => {
  const [a, b] = node.src
  const amount = b === undefined ? undefined : constantOf(b)
  switch (node.op) {
    case "CONST":
      return Number(node.arg) | 0
    case "STACK":
      return node.src.reduce((bits, s) => bits | possibleBits(s), 0)
    case "LANE":
      return possibleBits(a!)
    case "AND":
      return possibleBits(a!) & possibleBits(b!)
    case "OR":
    case "XOR":
      return possibleBits(a!) | possibleBits(b!)
    case "SHL":
      return amount === undefined ? -1 : possibleBits(a!) << amount
    case "SHR":
      return amount === undefined || node.dtype.scalar !== "u32" ? -1 : possibleBits(a!) >>> amount
    default:
      return -1
  }
}

/** The largest value that a byte of a word may have, as an unsigned number. */
const largestByte = (node: UOp): number => {
  const bits = possibleBits(node)
  return Math.max(...[0, 8, 16, 24].map((shift) => (bits >>> shift) & 255))
}

/** A DOT4I8 with an operand whose bytes are all from 0 to `most`, at most 127. */
interface Narrow {
  readonly signed: UOp
  readonly narrow: UOp
  readonly most: number
}

/**
 * A product of vectors that relaxed SIMD does with one result. The second operand of `relaxed_dot_i8x16_i7x16` has bytes of
 * 7 bits, 0 to 127: what machines make of others differs, and only that (proposal relaxed-simd, "Relaxed integer dot
 * product"). Sums of two products are then below 2^15, so nothing saturates.
 */
const narrowOf = (node: UOp): Narrow | undefined => {
  if (node.op !== "DOT4I8" || node.dtype.lanes !== 4) return undefined
  const [a, b] = node.src as [UOp, UOp]
  const [ofA, ofB] = [largestByte(a), largestByte(b)]
  if (Math.min(ofA, ofB) > 127) return undefined
  return ofB <= ofA ? { signed: a, narrow: b, most: ofB } : { signed: b, narrow: a, most: ofA }
}

/** Vectors of four words that are computed as eight sums of 16 bits, of which two make a word. */
export interface PairSums {
  /** Those that stay so, because all that use them can take it. */
  readonly kept: ReadonlySet<UOp>
  /** Those that are added up to words when they are complete. */
  readonly widened: ReadonlySet<UOp>
}

export const noPairSums: PairSums = { kept: new Set(), widened: new Set() }

/**
 * Finds the largest sets of such vectors: products, their sums while they fit 16 bits, and lanes taken from them. A vector
 * that something else uses as words stays out of what is made of it, so the search is repeated without it.
 */
export const pairSumsOf = (nodes: ReadonlyArray<UOp>): PairSums => {
  const asWords = new Set<UOp>()
  for (;;) {
    /** The largest magnitude of the sums of 16 bits. */
    const most = new Map<UOp, number>()
    const below = (sources: ReadonlyArray<UOp>): ReadonlyArray<number> | undefined => {
      const found = sources.map((s) => asWords.has(s) ? undefined : most.get(s))
      return found.every((x) => x !== undefined) ? found : undefined
    }
    for (const node of nodes) {
      const narrow = narrowOf(node)
      if (narrow !== undefined) most.set(node, 2 * 128 * narrow.most)
      if (!isSum(node) && !isTaken(node)) continue
      const sources = below(node.src)
      if (sources === undefined || (node.op === "LANE" && asWords.has(node))) continue
      const bound = isSum(node) ? sources.reduce((a, b) => a + b) : Math.max(...sources)
      if (bound < 2 ** 15) most.set(node, bound)
    }
    const known = asWords.size
    for (const node of nodes) {
      if (!most.has(node)) { for (const s of node.src) if (most.has(s)) asWords.add(s) }
    }
    if (asWords.size > known) continue
    const vectors = [...most.keys()].filter((node) => node.op !== "LANE")
    const kept = new Set(vectors.filter((node) => !asWords.has(node)))
    return { kept, widened: new Set(vectors.filter((node) => asWords.has(node) && node.op !== "DOT4I8")) }
  }
}

const isSum = (node: UOp): boolean => node.op === "ADD" && node.dtype.scalar === "i32" && node.dtype.lanes === 4

/** Lanes put together as they are. */
const isTaken = (node: UOp): boolean =>
  node.dtype.scalar === "i32" &&
  (node.op === "LANE" || (node.op === "STACK" && uniform(node) === undefined && shuffle(node) !== undefined))

/** The addends of a sum of words, through those sums that nobody else uses. */
const addends = (node: UOp, body: Body): ReadonlyArray<UOp> =>
  isSum(node) && !body.pairSums.widened.has(node)
    ? node.src.flatMap((s) => body.isInlined(s) ? addends(s, body) : [s])
    : [node]

/** A product or a sum with instructions of relaxed SIMD, or nothing where they do not help. */
export const relaxedSum = (node: UOp, body: Body): string | undefined => {
  const { kept, widened } = body.pairSums
  if (kept.has(node) || widened.has(node)) {
    const narrow = narrowOf(node)
    if (narrow !== undefined) {
      return `(i16x8.relaxed_dot_i8x16_i7x16_s ${body.value(narrow.signed)} ${body.value(narrow.narrow)})`
    }
    return isSum(node) ? `(i16x8.add ${node.src.map((s) => body.value(s)).join(" ")})` : undefined
  }
  if (node.op !== "DOT4I8" && !isSum(node)) return undefined
  return addedDots(node, undefined, body)
}

/**
 * The products among the addends of a sum, each added by the instruction that multiplies, to the other addends and to what
 * `start` reads; nothing if there is no such product.
 */
const addedDots = (node: UOp, start: string | undefined, body: Body): string | undefined => {
  if (body.simd === "plain") return undefined
  const dots: Array<Narrow> = []
  const rest: Array<UOp> = []
  for (const x of addends(node, body)) {
    const dot = x === node || body.isInlined(x) ? narrowOf(x) : undefined
    if (dot === undefined) rest.push(x)
    else dots.push(dot)
  }
  if (dots.length === 0) return undefined
  const others = [...(start === undefined ? [] : [start]), ...rest.map((x) => body.value(x))]
  const first = others.length === 0 ? zeros : others.reduce((a, b) => `(i32x4.add ${a} ${b})`)
  return dots.reduce(
    (sum, { narrow, signed }) =>
      `(i32x4.relaxed_dot_i8x16_i7x16_add_s ${body.value(signed)} ${body.value(narrow)} ${sum})`,
    first
  )
}

const zeros = "(v128.const i32x4 0 0 0 0)"

/** A register with a value added that is, or has among its addends, a product: the product is added to the register itself. */
export const accumulatedDots = (register: UOp, x: UOp, body: Body): string | undefined =>
  register.dtype.lanes === 4 && body.isInlined(x) && !body.pairSums.kept.has(x) && !body.pairSums.widened.has(x)
    ? addedDots(x, body.value(register), body)
    : undefined

/** Products of bytes as 16 bits, added in pairs, and once more: the pairs of a word are neighbours in one of two vectors. */
export const vectorDot = (x: string, y: string, body: Body): string => {
  const [a, a2] = body.twice(x, "v128")
  const [b, b2] = body.twice(y, "v128")
  const [low, low2] = body.twice(
    `(i32x4.dot_i16x8_s (i16x8.extend_low_i8x16_s ${a}) (i16x8.extend_low_i8x16_s ${b}))`,
    "v128"
  )
  const [high, high2] = body.twice(
    `(i32x4.dot_i16x8_s (i16x8.extend_high_i8x16_s ${a2}) (i16x8.extend_high_i8x16_s ${b2}))`,
    "v128"
  )
  return `(i32x4.add (i8x16.shuffle 0 1 2 3 8 9 10 11 16 17 18 19 24 25 26 27 ${low} ${high}) ` +
    `(i8x16.shuffle 4 5 6 7 12 13 14 15 20 21 22 23 28 29 30 31 ${low2} ${high2}))`
}
