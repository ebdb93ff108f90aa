import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import type { Arena, UOp } from "@tg/core-uop/UOp"
import * as Sum from "../Sum.ts"
import { decisions } from "./decisions.ts"
import { settled } from "./slot.ts"

type S = Sum.Sum

const floorMod = (x: number, c: number): number => x - Math.floor(x / c) * c

const int32 = 2 ** 31

/** Whether every partial value fits the 32 bits an index is rendered in. */
export const fits = (sum: S): boolean => {
  const { max, min } = Sum.bounds(sum)
  return min >= -int32 && max < int32
}

/** The quotient by `c`, if the sum stays within one period of `c`. */
const period = (sum: S, c: number): number | undefined => {
  const { max, min } = Sum.bounds(sum)
  const k = Math.floor(min / c)
  return k === Math.floor(max / c) && Number.isFinite(k) ? k : undefined
}

const div = (numerator: UOp, c: UOp): S =>
  Sum.of(settled(numerator.arena.make("FLOORDIV", DType.index, [numerator, c])))
const mod = (numerator: UOp, c: UOp): S =>
  Sum.of(settled(numerator.arena.make("FLOORMOD", DType.index, [numerator, c])))
const int = (arena: Arena, c: number): UOp => arena.make("CONST", DType.index, [], c)

type Residue = (a: number, c: number) => number

const towardZero: Residue = (a, c) => a % c
/** Other ways to reduce coefficients: to 0 .. c-1, and to the nearest multiple with ties to either side. */
const residues: ReadonlyArray<Residue> = [
  floorMod,
  (a, c) => {
    const r = floorMod(a, c)
    return r * 2 > c ? r - c : r
  },
  (a, c) => {
    const r = floorMod(a, c)
    return r * 2 >= c ? r - c : r
  }
]

/** `sum = c * quotient + rest`, with the coefficients of `rest` reduced by `residue`. */
const reduce = (sum: S, c: number, residue: Residue): S =>
  Sum.mapCoefficients(sum, (a) => residue(a, c) + 0, floorMod(sum.constant, c))

const dividedBy = (sum: S, c: number): S => Sum.mapCoefficients(sum, (a) => a / c, sum.constant / c)

/** `sum = c * whole + rest`: the rest that quotient and remainder share, with its own quotient if bounds give it. */
const separate = (sum: S, c: number): { readonly rest: S; readonly quotient: number | undefined } => {
  const whole = period(sum, c)
  if (whole !== undefined) return { rest: sum, quotient: whole }
  const first = reduce(sum, c, towardZero)
  const quotient = period(first, c)
  if (quotient !== undefined) return { rest: first, quotient }
  // small positive coefficients are the same whichever way they are reduced
  if (first.coefficients.some((a) => a < 0 || 2 * a >= c)) {
    for (const residue of residues) {
      const rest = reduce(first, c, residue)
      const quotient = period(rest, c)
      if (quotient !== undefined) return { rest, quotient }
    }
  }
  const tried = first.terms.length <= 4 ? first.terms.length : 0
  // try each coefficient's other residue, of the opposite sign
  for (let i = 0; i < tried; i++) {
    const range = Bounds.of(first.terms[i]!)
    // a residue has to stay within one period by itself
    if ((c - Math.abs(first.coefficients[i]!)) * (range.max - range.min) >= c) continue
    let at = 0
    const rest = Sum.mapCoefficients(first, (a) => at++ === i ? a - Math.sign(a) * c : a, first.constant)
    const quotient = period(rest, c)
    if (quotient !== undefined) return { rest, quotient }
  }
  return { rest: lifted(first, c), quotient: undefined }
}

/** Adds a multiple of `c`, so that the numerator is never negative: truncating and floor division then agree. */
const lifted = (sum: S, c: number): S => {
  if (sum.constant === 0 && sum.coefficients.every((a) => a > 0)) return sum
  const { min } = Sum.bounds(sum)
  if (min >= 0) return sum
  const raised = Sum.addScaled(sum, Sum.one, Math.ceil(-min / c) * c)
  return fits(raised) ? raised : sum
}

/** A divisor of `c` that splits the sum: `high` is divisible by it, `low` stays within one period of it. */
const split = (
  sum: S,
  c: number
): { readonly factor: number; readonly high: S; readonly low: S; readonly carry: number } | undefined => {
  const seen = new Set<number>()
  for (const a of sum.coefficients) seen.add(Sum.gcd(a, c))
  const candidates = [...seen].filter((f) => f > 1).sort((a, b) => b - a)
  for (const factor of candidates) {
    const high = Sum.filter(sum, (a) => a % factor === 0)
    const low = Sum.add(Sum.filter(sum, (a) => a % factor !== 0), Sum.constant(sum.constant))
    const carry = period(low, factor)
    if (carry !== undefined) return { factor, high, low, carry }
  }
  return undefined
}

/** The term `y // a` with coefficient 1 and a constant `a`, if there is one. */
const nestedQuotient = (sum: S): UOp | undefined =>
  sum.terms.find((t, i) => sum.coefficients[i] === 1 && t.op === "FLOORDIV" && isPositive(t.src[1]!))

const isPositive = (node: UOp): boolean => node.op === "CONST" && Number(node.arg) > 0

/** `sum // c` for a constant `c > 0`. */
export const divideBy = (sum: S, c: number, arena: Arena): S => {
  if (c === 1) return sum
  const { quotient, rest } = separate(sum, c)
  const whole = dividedBy(Sum.sub(sum, rest), c)
  if (quotient !== undefined) return Sum.add(whole, Sum.constant(quotient))
  const parts = split(rest, c)
  if (parts !== undefined) {
    const inner = Sum.add(dividedBy(parts.high, parts.factor), Sum.constant(parts.carry))
    return Sum.add(whole, divideBy(inner, c / parts.factor, arena))
  }
  const nested = nestedQuotient(rest)
  if (nested !== undefined) {
    // floor((z + floor(y / a)) / c) = floor((a * z + y) / (a * c))
    const a = Number(nested.src[1]!.arg)
    const flat = Sum.add(Sum.scale(Sum.sub(rest, Sum.atom(nested)), a), Sum.of(nested.src[0]!))
    if (fits(flat) && a * c < int32) return Sum.add(whole, divideBy(flat, a * c, arena))
  }
  const only = rest.terms[0]!
  if (rest.terms.length === 1 && rest.coefficients[0] === 1 && rest.constant === 0 && only.op === "FLOORMOD") {
    // (y % (c * k)) // c = (y // c) % k
    const m = only.src[1]!
    if (isPositive(m) && Number(m.arg) % c === 0) {
      return Sum.add(whole, remainderBy(divideBy(Sum.of(only.src[0]!), c, arena), Number(m.arg) / c, arena))
    }
  }
  return Sum.add(whole, div(build(rest, arena), int(arena, c)))
}

/** A term `a * (y % m)` whose inner modulus is redundant modulo `c`: `c` divides `a * m`. */
const idleModulus = (sum: S, c: number): number =>
  sum.terms.findIndex((t, i) =>
    t.op === "FLOORMOD" && isPositive(t.src[1]!) && (sum.coefficients[i]! * Number(t.src[1]!.arg)) % c === 0
  )

/** `sum % c` for a constant `c > 0`. */
export const remainderBy = (sum: S, c: number, arena: Arena): S => {
  if (c === 1) return Sum.zero
  const { quotient, rest } = separate(sum, c)
  if (quotient !== undefined) return Sum.addScaled(rest, Sum.one, -quotient * c)
  const idle = idleModulus(rest, c)
  if (idle >= 0) {
    const term = rest.terms[idle]!
    const a = rest.coefficients[idle]!
    const open = Sum.addScaled(Sum.addScaled(rest, Sum.atom(term), -a), Sum.of(term.src[0]!), a)
    return remainderBy(open, c, arena)
  }
  const parts = split(rest, c)
  if (parts !== undefined) {
    const { carry, factor, high, low } = parts
    const inner = Sum.add(dividedBy(high, factor), Sum.constant(carry))
    const outer = Sum.scale(remainderBy(inner, c / factor, arena), factor)
    return Sum.add(outer, Sum.addScaled(low, Sum.one, -carry * factor))
  }
  return mod(build(rest, arena), int(arena, c))
}

/** `term / lead` for products with constant factors, if it is exact. */
const quotientTerm = (term: UOp, lead: ReadonlyArray<UOp>): ReadonlyArray<UOp> | undefined => {
  const rest = [...Sum.factors(term)]
  for (const f of lead) {
    const i = rest.indexOf(f)
    if (i < 0) return undefined
    rest.splice(i, 1)
  }
  return rest
}

/** Long division by a symbolic divisor: `sum = divisor * quotient + rest`. */
const longDivision = (sum: S, divisor: S): { readonly quotient: S; readonly rest: S } => {
  let lead = 0
  divisor.terms.forEach((t, i) => {
    if (Sum.factors(t).length > Sum.factors(divisor.terms[lead]!).length) lead = i
  })
  const leadAtoms = Sum.factors(divisor.terms[lead]!)
  const leadCoefficient = divisor.coefficients[lead]!
  let quotient = Sum.zero
  let rest = sum
  for (let step = 0; step < 2 * sum.terms.length; step++) {
    const i = rest.terms.findIndex((t, i) =>
      rest.coefficients[i]! % leadCoefficient === 0 && quotientTerm(t, leadAtoms) !== undefined
    )
    if (i < 0) break
    const atoms = quotientTerm(rest.terms[i]!, leadAtoms)!
    const c = rest.coefficients[i]! / leadCoefficient
    const q = atoms.length === 0 ? Sum.constant(c) : Sum.atom(Sum.product(atoms), c)
    quotient = Sum.add(quotient, q)
    rest = Sum.sub(rest, Sum.mul(q, divisor))
  }
  return { quotient, rest }
}

const bySymbol = (sum: S, divisor: S): { readonly quotient: S; readonly rest: S; readonly exact: boolean } => {
  const { quotient, rest } = longDivision(sum, divisor)
  const exact = Sum.lowerBound(rest) >= 0 && Sum.lowerBound(Sum.addScaled(Sum.sub(divisor, rest), Sum.one, -1)) >= 0
  if (exact || (divisor.terms.length === 1 && divisor.constant === 0 && Sum.bounds(divisor).min > 0)) {
    return { quotient, rest, exact }
  }
  return { quotient: Sum.zero, rest: sum, exact: false }
}

/** `a // b` with the sign conventions of floor division. */
export const divide = (a: S, b: S, arena: Arena): S => {
  if (Sum.isConstant(b)) {
    if (b.constant > 0) return divideBy(a, b.constant, arena)
    if (b.constant < 0) return divideBy(Sum.scale(a, -1), -b.constant, arena)
    return div(build(a, arena), int(arena, 0))
  }
  const { exact, quotient, rest } = bySymbol(a, b)
  if (exact) return quotient
  const node = build(b, arena)
  return Sum.add(quotient, div(build(rest, arena), node))
}

/** `a % b`, with the sign of `b`. */
export const remainder = (a: S, b: S, arena: Arena): S => {
  if (Sum.isConstant(b)) {
    if (b.constant > 0) return remainderBy(a, b.constant, arena)
    if (b.constant < 0) return Sum.scale(remainderBy(Sum.scale(a, -1), -b.constant, arena), -1)
    return mod(build(a, arena), int(arena, 0))
  }
  const { exact, rest } = bySymbol(a, b)
  if (exact) return rest
  // not exact: a remainder of the reduced numerator
  return mod(build(rest, arena), build(b, arena))
}

// division and recombination need each other: numerators are recombined sums

const decisionsOf = (sum: S): number => sum.terms.reduce((n, term) => n + decisions(term), 0)

/** The progress measure of `recombine`: fewer decisions, or as many and fewer terms. */
const better = (candidate: S, sum: S): boolean => {
  const difference = decisionsOf(candidate) - decisionsOf(sum)
  return difference < 0 || (difference === 0 && candidate.terms.length < sum.terms.length)
}

/** The distinct coefficients: sums are long, but few coefficients differ. */
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

/** Joins quotients and remainders of the same division. Terminates, as each step is `better`. */
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
