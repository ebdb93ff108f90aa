import * as DType from "@tg/core-uop/DType"
import type { Arena, UOp } from "@tg/core-uop/UOp"
import * as Sum from "../Sum.ts"
import { build, fits } from "./division.ts"
import { settled } from "./slot.ts"

type S = Sum.Sum

const bool = (arena: Arena, value: boolean): UOp => arena.make("CONST", DType.bool, [], value)
const not = (x: UOp): UOp => x.arena.make("XOR", DType.bool, [x, bool(x.arena, true)])

/** Multiplies by a divisor: `y // d + z < 0` is `y + d * z < 0` for a constant `d > 0`. */
const withoutQuotient = (sum: S): S | undefined => {
  for (let i = 0; i < sum.terms.length; i++) {
    const term = sum.terms[i]!
    if (term.op !== "FLOORDIV" || sum.coefficients[i] !== 1) continue
    const d = Sum.of(term.src[1]!)
    if (!Sum.isConstant(d) || d.constant <= 0) continue
    const flat = Sum.addScaled(Sum.of(term.src[0]!), Sum.addScaled(sum, Sum.atom(term), -1), d.constant)
    if (fits(flat)) return flat
  }
  return undefined
}

/**
 * Drops low-order terms that cannot decide: `f * x + b < c` is `x < q` when `(c - b) / f` rounds up to the same `q` for
 * every `b`. `sum` has no constant; the comparison is `sum < bound`.
 */
const coarser = (sum: S, bound: number): { readonly sum: S; readonly bound: number } | undefined => {
  const factors = [...new Set(sum.coefficients.map(Math.abs))].filter((f) => f > 1).sort((a, b) => b - a)
  for (const f of factors) {
    const high = Sum.filter(sum, (c) => c % f === 0)
    const low = Sum.bounds(Sum.filter(sum, (c) => c % f !== 0))
    const q = Math.ceil((bound - low.min) / f)
    if (q !== Math.ceil((bound - low.max) / f) || !Number.isFinite(q)) continue
    return { sum: Sum.mapCoefficients(high, (c) => c / f, 0), bound: q }
  }
  return undefined
}

/** Positive terms left, negative terms and the constant right. */
const twoSided = (op: "CMPLT" | "CMPEQ", sum: S, bound: number, arena: Arena): UOp => {
  const left = Sum.filter(sum, (c) => c > 0)
  const right = Sum.addScaled(Sum.constant(bound), Sum.filter(sum, (c) => c < 0), -1)
  return settled(arena.make(op, DType.bool, [build(left, arena), build(right, arena)]))
}

/** The normal form of a comparison has a positive last term. */
const isNegative = (sum: S): boolean => sum.coefficients[sum.coefficients.length - 1]! < 0

/** `a < b` in normal form: `sum < constant`, or its negation. */
export const lessThan = (a: S, b: S, arena: Arena): UOp => negative(Sum.sub(a, b), arena)

/** `difference < 0`. */
const negative = (difference: S, arena: Arena): UOp => {
  const { max, min } = Sum.bounds(difference)
  if (max < 0) return bool(arena, true)
  if (min >= 0 || Sum.lowerBound(difference) >= 0) return bool(arena, false)
  if (Sum.lowerBound(Sum.addScaled(Sum.scale(difference, -1), Sum.one, -1)) >= 0) return bool(arena, true)
  if (isNegative(difference)) {
    // d < 0 is !(-d - 1 < 0)
    const opposite = positive(Sum.addScaled(Sum.scale(difference, -1), Sum.one, -1), arena)
    return opposite.op === "CONST" ? bool(arena, opposite.arg !== true) : not(opposite)
  }
  return positive(difference, arena)
}

/** `difference < 0` where the last term is positive. */
const positive = (difference: S, arena: Arena): UOp => {
  const flat = withoutQuotient(difference)
  if (flat !== undefined) return negative(flat, arena)
  const terms = Sum.withoutConstant(difference)
  const bound = -difference.constant
  const simpler = coarser(terms, bound)
  if (simpler !== undefined) return negative(Sum.addScaled(simpler.sum, Sum.one, -simpler.bound), arena)
  return twoSided("CMPLT", terms, bound, arena)
}

/** `a == b` in normal form. */
export const equal = (a: S, b: S, arena: Arena): UOp => {
  let difference = Sum.sub(a, b)
  const { max, min } = Sum.bounds(difference)
  if (min > 0 || max < 0) return bool(arena, false)
  if (Sum.isConstant(difference)) return bool(arena, difference.constant === 0)
  const g = Sum.content(difference)
  if (difference.constant % g !== 0) return bool(arena, false)
  const sign = isNegative(difference) ? -g : g
  difference = Sum.mapCoefficients(difference, (c) => c / sign, difference.constant / sign)
  const opposite = Sum.scale(difference, -1)
  if (
    Sum.lowerBound(Sum.addScaled(difference, Sum.one, -1)) >= 0 ||
    Sum.lowerBound(Sum.addScaled(opposite, Sum.one, -1)) >= 0
  ) return bool(arena, false)
  return twoSided("CMPEQ", Sum.withoutConstant(difference), -difference.constant, arena)
}
