/** Sums of products of bytes: DOT4I8, alone and added up. */
import type { UOp } from "@tg/core-uop/UOp"
import type { Body } from "./elementwise.ts"
import { constantOf } from "./value.ts"

/** The bits that may be set in the 32 bits of an integer, or in some lane of a vector of them. */
const possibleBits = (node: UOp): number => {
  const [a, b] = node.src
  const amount = b === undefined ? undefined : constantOf(b)
  switch (node.op) {
    case "CONST":
      return Number(node.arg) | 0
    case "STACK":
      return node.src.reduce((bits, s) => bits | possibleBits(s), 0)
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

const narrowOf = (node: UOp): Narrow | undefined => {
  if (node.op !== "DOT4I8") return undefined
  const [a, b] = node.src as [UOp, UOp]
  const most = Math.min(largestByte(a), largestByte(b))
  if (most > 127) return undefined
  return largestByte(b) === most ? { signed: a, narrow: b, most } : { signed: b, narrow: a, most }
}

/** The addends of a sum of integers, through those sums that nobody else uses. */
const addends = (node: UOp, body: Body): ReadonlyArray<UOp> =>
  node.op === "ADD" ? node.src.flatMap((s) => body.isInlined(s) ? addends(s, body) : [s]) : [node]

/** How large the sum of two products of a byte by one of at most `most` can be. */
const pairSum = (most: number): number => 2 * 128 * most

/** Dot products whose sums of pairs can be added in 16 bits. */
const groupsOf = (dots: ReadonlyArray<Narrow>): ReadonlyArray<ReadonlyArray<Narrow>> => {
  const groups: Array<Array<Narrow>> = []
  let sum = Infinity
  for (const dot of dots) {
    sum += pairSum(dot.most)
    if (sum < 2 ** 15) groups.at(-1)!.push(dot)
    else {
      groups.push([dot])
      sum = pairSum(dot.most)
    }
  }
  return groups
}

/**
 * A vector sum with instructions of relaxed SIMD, or nothing if none of its addends is a dot product that they do. The
 * second operand of `relaxed_dot_i8x16_i7x16` has bytes of 7 bits, 0 to 127: what machines make of others differs, and
 * only that (proposal relaxed-simd, "Relaxed integer dot product"). Sums of two products are then below 2^15, so nothing
 * saturates, and the result is the same everywhere.
 */
export const relaxedSum = (node: UOp, body: Body): string | undefined => {
  if (node.dtype.scalar !== "i32" || node.dtype.lanes !== 4 || (node.op !== "DOT4I8" && node.op !== "ADD")) {
    return undefined
  }
  const dots: Array<Narrow> = []
  const rest: Array<UOp> = []
  for (const x of addends(node, body)) {
    const dot = x === node || body.isInlined(x) ? narrowOf(x) : undefined
    if (dot === undefined) rest.push(x)
    else dots.push(dot)
  }
  if (dots.length === 0) return undefined
  const start = rest.length === 0 ? undefined : rest.map((x) => body.value(x)).reduce((a, b) => `(i32x4.add ${a} ${b})`)
  return groupsOf(dots).reduce<string | undefined>((sum, group) => {
    if (group.length === 1) {
      const [{ narrow, signed }] = group as [Narrow]
      const zero = "(v128.const i32x4 0 0 0 0)"
      return `(i32x4.relaxed_dot_i8x16_i7x16_add_s ${body.value(signed)} ${body.value(narrow)} ${sum ?? zero})`
    }
    const pairs = group
      .map(({ narrow, signed }) => `(i16x8.relaxed_dot_i8x16_i7x16_s ${body.value(signed)} ${body.value(narrow)})`)
      .reduce((a, b) => `(i16x8.add ${a} ${b})`)
    const words = `(i32x4.extadd_pairwise_i16x8_s ${pairs})`
    return sum === undefined ? words : `(i32x4.add ${sum} ${words})`
  }, start)
}

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
