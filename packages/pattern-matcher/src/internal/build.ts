import type { Arena, UOp } from "@tg/core-uop/UOp"
import * as Sum from "../Sum.ts"
import { decisions } from "./decisions.ts"
import { divide, remainder } from "./divmod.ts"

type S = Sum.Sum

const decisionsOf = (sum: S): number => sum.terms.reduce((n, term) => n + decisions(term), 0)

/** Fewer divisions, or as many and fewer terms: what every step of `recombine` must reach, so it comes to rest. */
const better = (candidate: S, sum: S): boolean => {
  const difference = decisionsOf(candidate) - decisionsOf(sum)
  return difference < 0 || (difference === 0 && candidate.terms.length < sum.terms.length)
}

/** The coefficients that occur: sums are long, but few coefficients are different. */
const distinct = (sum: S): ReadonlyArray<number> => {
  const seen: Array<number> = []
  for (const c of sum.coefficients) if (!seen.includes(c)) seen.push(c)
  return seen
}

/** With `x % d` at term `i`: `d * (x // d) + x % d = x`, also for the digits of a longer remainder. */
const joinRemainder = (sum: S, i: number, coefficients: ReadonlyArray<number>, arena: Arena): S | undefined => {
  const term = sum.terms[i]!
  const m = sum.coefficients[i]!
  const x = Sum.of(term.src[0]!)
  const d = Sum.of(term.src[1]!)
  // quotients, if any, come with a multiple of m * d
  if (Sum.isConstant(d) && !coefficients.some((c) => c % (m * d.constant) === 0)) return undefined
  const q = divide(x, d, arena)
  const without = Sum.addScaled(Sum.addScaled(sum, Sum.atom(term), -m), Sum.mul(d, q), -m)
  const joined = Sum.addScaled(without, x, m)
  if (better(joined, sum)) return joined
  if (!Sum.isConstant(d)) return undefined
  // x % b + b * ((x // b) % a) = x % (a * b)
  for (let j = 0; j < sum.terms.length; j++) {
    const digit = sum.terms[j]!
    if (digit.op !== "FLOORMOD" || sum.coefficients[j] !== m * d.constant || digit.src[1]!.op !== "CONST") continue
    const a = Number(digit.src[1]!.arg)
    if (a <= 0 || !Sum.equals(remainder(q, Sum.constant(a), arena), Sum.atom(digit))) continue
    const rest = Sum.addScaled(Sum.addScaled(sum, Sum.atom(term), -m), Sum.atom(digit), -m * d.constant)
    const wide = Sum.addScaled(rest, remainder(x, Sum.constant(a * d.constant), arena), m)
    if (better(wide, sum)) return wide
  }
  return undefined
}

/** With `x // d` at term `i`: `x - d * (x // d) = x % d`. */
const formRemainder = (sum: S, i: number, arena: Arena): S | undefined => {
  const term = sum.terms[i]!
  if (term.src[1]!.op !== "CONST" || sum.coefficients[i]! % Number(term.src[1]!.arg) !== 0) return undefined
  const x = Sum.of(term.src[0]!)
  const d = Sum.of(term.src[1]!)
  if (!Sum.isConstant(d) || d.constant <= 0 || sum.coefficients[i]! % d.constant !== 0) return undefined
  const m = -sum.coefficients[i]! / d.constant
  if (x.terms.length > 0 && Sum.coefficientOf(sum, x.terms[0]!) !== m * x.coefficients[0]!) return undefined
  const rest = Sum.addScaled(Sum.addScaled(sum, Sum.atom(term), m * d.constant), x, -m)
  const formed = Sum.addScaled(rest, remainder(x, d, arena), m)
  return better(formed, sum) ? formed : undefined
}

/** Joins quotients and remainders of the same division; each step is `better`. */
export const recombine = (sum: S, arena: Arena): S => {
  let current = sum
  for (;;) {
    if (current.terms.length < 2) return current
    const coefficients = distinct(current)
    let next: S | undefined
    for (let i = 0; i < current.terms.length && next === undefined; i++) {
      const { op } = current.terms[i]!
      if (op === "FLOORMOD") next = joinRemainder(current, i, coefficients, arena)
      else if (op === "FLOORDIV") next = formRemainder(current, i, arena)
    }
    if (next === undefined) return current
    current = next
  }
}

/** The simplest node for a sum. */
export const build = (sum: S, arena: Arena): UOp => Sum.toNode(recombine(sum, arena), arena)
