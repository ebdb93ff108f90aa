import * as Bounds from "@tg/core-uop/Bounds"
import type { UOp } from "@tg/core-uop/UOp"
import { equal, lessThan } from "../internal/compare.ts"
import { build, divide, recombine, remainder } from "../internal/division.ts"
import { compare } from "../internal/rank.ts"
import { settled, slot } from "../internal/slot.ts"
import { isIndex, not, valueOf } from "../internal/values.ts"
import { rule, rules } from "../PatternMatcher.ts"
import * as Sum from "../Sum.ts"
import * as P from "../UPat.ts"

const isOpen = (node: UOp): boolean => !slot(node).canonical && isIndex(node)
const comparesIndex = (node: UOp): boolean => !slot(node).canonical && isIndex(node.src[0]!)
const sums = (node: UOp): readonly [Sum.Sum, Sum.Sum] => [Sum.of(node.src[0]!), Sum.of(node.src[1]!)]

/** A sum in normal form plus a later term or a constant: nothing to reorder. */
const isAppended = (node: UOp): boolean => {
  if (node.op !== "ADD") return false
  const a = Sum.of(node.src[0]!)
  const b = Sum.of(node.src[1]!)
  if (a.constant !== 0 || a.terms.length === 0 || b.terms.length + (b.constant === 0 ? 0 : 1) !== 1) return false
  return isNormal(node.src[0]!) && isNormal(node.src[1]!) &&
    (b.terms.length === 0 || compare(a.terms[a.terms.length - 1]!, b.terms[0]!) < 0)
}

const isNormal = (node: UOp): boolean => {
  switch (node.op) {
    case "ADD":
    case "MUL":
      return slot(node).canonical
    case "SUB":
    case "NEG":
    case "SHL":
      return false
    default:
      return true
  }
}

/** -1, 0 or 1 when `a - b` never changes sign (0: always equal), else undefined. */
const order = (a: UOp, b: UOp): number | undefined => {
  const difference = Sum.sub(Sum.of(a), Sum.of(b))
  if (Sum.lowerBound(difference) >= 0) return 1
  return Sum.lowerBound(Sum.scale(difference, -1)) >= 0 ? -1 : undefined
}

const isPowerOfTwo = (x: number): boolean => x > 0 && Number.isInteger(Math.log2(x))

/** Index arithmetic by normal form. `Sum`, `internal/division.ts` and `internal/compare.ts` hold the algebra. */
export const index = rules("index", [
  rule("range-of-one", P.node("RANGE", "SPECIAL"), (_, node) => {
    const { max, min } = Bounds.of(node.src[0]!)
    return min === 1 && max === 1 ? node.arena.make("CONST", node.dtype, [], 0) : undefined
  }),
  rule("sum", P.node("ADD", "SUB", "NEG", "MUL", "SHL"), (_, node) => {
    const sum = Sum.of(node)
    const joined = recombine(sum, node.arena)
    return settled(joined === sum && isAppended(node) ? node : Sum.toNode(joined, node.arena))
  }, { when: isOpen }),
  rule("divide", P.floordiv(P.anything, P.anything), (_, node) => {
    const [a, b] = sums(node)
    return build(divide(a, b, node.arena), node.arena)
  }, { when: isOpen }),
  rule("remainder", P.floormod(P.anything, P.anything), (_, node) => {
    const [a, b] = sums(node)
    return build(remainder(a, b, node.arena), node.arena)
  }, { when: isOpen }),
  rule("shift-right", P.shr(P.any("x"), P.uniform("c")), ({ c, x }, node) => {
    if (!Sum.isShift(c)) return undefined
    return build(divide(Sum.of(x), Sum.constant(2 ** Number(c.arg)), node.arena), node.arena)
  }, { when: isIndex }),
  rule("mask", P.and(P.any("x"), P.uniform("c")), ({ c, x }, node) => {
    const modulus = Number(valueOf(c)) + 1
    if (!isPowerOfTwo(modulus)) return undefined
    return build(remainder(Sum.of(x), Sum.constant(modulus), node.arena), node.arena)
  }, { when: isIndex }),
  rule("less", P.lt(P.anything, P.anything), (_, node) => {
    const [a, b] = sums(node)
    return lessThan(a, b, node.arena)
  }, { when: comparesIndex }),
  rule("equal", P.eq(P.anything, P.anything), (_, node) => {
    const [a, b] = sums(node)
    return equal(a, b, node.arena)
  }, { when: comparesIndex }),
  rule("not-equal", P.ne(P.anything, P.anything), (_, node) => {
    const [a, b] = sums(node)
    return not(equal(a, b, node.arena))
  }, { when: comparesIndex }),
  rule("max", P.max(P.anything, P.anything), (_, node) => {
    const [a, b] = node.src as [UOp, UOp]
    const sign = order(a, b)
    return sign === undefined ? undefined : sign >= 0 ? a : b
  }, { when: isIndex }),
  rule("min", P.min(P.anything, P.anything), (_, node) => {
    const [a, b] = node.src as [UOp, UOp]
    const sign = order(a, b)
    return sign === undefined ? undefined : sign >= 0 ? b : a
  }, { when: isIndex }),
  rule("max-max", P.max(P.max(P.any("x"), P.any("a")), P.any("b")), ({ a, b, x }) => {
    const sign = order(a, b)
    return sign === undefined ? undefined : x.arena.make("MAX", x.dtype, [x, sign >= 0 ? a : b])
  }, { when: isIndex }),
  rule("min-min", P.min(P.min(P.any("x"), P.any("a")), P.any("b")), ({ a, b, x }) => {
    const sign = order(a, b)
    return sign === undefined ? undefined : x.arena.make("MIN", x.dtype, [x, sign >= 0 ? b : a])
  }, { when: isIndex }),
  rule("order", P.node("MAX", "MIN", "AND", "OR", "XOR"), (_, node) => {
    const [a, b] = node.src as [UOp, UOp]
    // constants last, as in sums
    const swap = a.op === "CONST" ? b.op !== "CONST" : b.op !== "CONST" && compare(a, b) > 0
    return swap ? node.arena.make(node.op, node.dtype, [b, a]) : undefined
  }, { when: isIndex })
])
