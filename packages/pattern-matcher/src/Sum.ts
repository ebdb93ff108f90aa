import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import { type Arena, type Range, unseen, type UOp } from "@tg/core-uop/UOp"
import type { Eq } from "fp-ts/Eq"
import type { Ring } from "fp-ts/Ring"
import { compare } from "./internal/rank.ts"
import { slot } from "./internal/slot.ts"

/**
 * The normal form of an index expression, a polynomial: `sum of coefficients[i] * terms[i], plus constant`. Terms are monomials,
 * that is products of atoms (nodes that are not sums), in canonical order and distinct; no coefficient is 0.
 */
export interface Sum {
  readonly terms: ReadonlyArray<UOp>
  readonly coefficients: ReadonlyArray<number>
  readonly constant: number
}

const none: ReadonlyArray<never> = []

export const constant = (value: number): Sum => ({ terms: none, coefficients: none, constant: value + 0 })
export const zero: Sum = constant(0)
export const one: Sum = constant(1)

/** A node as an indivisible term. */
export const atom = (node: UOp, coefficient = 1): Sum => ({ terms: [node], coefficients: [coefficient], constant: 0 })

export const isConstant = (sum: Sum): boolean => sum.terms.length === 0

/** `a + factor * b`. */
export const addScaled = (a: Sum, b: Sum, factor: number): Sum => {
  if (factor === 0) return a
  const k = a.constant + factor * b.constant + 0
  if (b.terms.length === 0) return k === a.constant ? a : { terms: a.terms, coefficients: a.coefficients, constant: k }
  const terms: Array<UOp> = []
  const coefficients: Array<number> = []
  let i = 0
  let j = 0
  while (i < a.terms.length || j < b.terms.length) {
    const order = i === a.terms.length ? 1 : j === b.terms.length ? -1 : compare(a.terms[i]!, b.terms[j]!)
    const c = (order <= 0 ? a.coefficients[i]! : 0) + (order >= 0 ? factor * b.coefficients[j]! : 0)
    if (c !== 0) {
      terms.push(order <= 0 ? a.terms[i]! : b.terms[j]!)
      coefficients.push(c)
    }
    if (order <= 0) i++
    if (order >= 0) j++
  }
  return { terms, coefficients, constant: k }
}

export const add = (a: Sum, b: Sum): Sum => addScaled(a, b, 1)
export const sub = (a: Sum, b: Sum): Sum => addScaled(a, b, -1)
export const scale = (a: Sum, factor: number): Sum =>
  factor === 1
    ? a
    : factor === 0
    ? zero
    : { terms: a.terms, coefficients: a.coefficients.map((c) => c * factor), constant: a.constant * factor + 0 }

/** The sum without its constant. */
export const withoutConstant = (a: Sum): Sum => a.constant === 0 ? a : { ...a, constant: 0 }

/** The part of a sum whose terms satisfy a predicate, without the constant. */
export const filter = (a: Sum, keep: (coefficient: number, term: UOp) => boolean): Sum => {
  const terms: Array<UOp> = []
  const coefficients: Array<number> = []
  for (let i = 0; i < a.terms.length; i++) {
    if (!keep(a.coefficients[i]!, a.terms[i]!)) continue
    terms.push(a.terms[i]!)
    coefficients.push(a.coefficients[i]!)
  }
  return { terms, coefficients, constant: 0 }
}

/** Other coefficients for the same terms (zeros drop out). */
export const mapCoefficients = (a: Sum, f: (coefficient: number) => number, constant: number): Sum => {
  const coefficients = a.coefficients.map(f)
  if (coefficients.every((c) => c !== 0)) return { terms: a.terms, coefficients, constant: constant + 0 }
  return {
    terms: a.terms.filter((_, i) => coefficients[i] !== 0),
    coefficients: coefficients.filter((c) => c !== 0),
    constant: constant + 0
  }
}

/** The coefficient of a term, 0 when it does not occur. */
export const coefficientOf = (a: Sum, term: UOp): number => {
  const i = a.terms.indexOf(term)
  return i < 0 ? 0 : a.coefficients[i]!
}

/** The atoms of a product, in canonical order. */
export const factors = (term: UOp): ReadonlyArray<UOp> => {
  if (term.op !== "MUL" || term.dtype !== DType.index) return [term]
  const result: Array<UOp> = []
  let node = term
  while (node.op === "MUL") {
    result.push(node.src[1]!)
    node = node.src[0]!
  }
  result.push(node)
  return result.reverse()
}

/** The product of atoms as a node. */
export const product = (atoms: ReadonlyArray<UOp>): UOp => {
  const sorted = atoms.toSorted(compare)
  return sorted.slice(1).reduce((x, y) => {
    const node = x.arena.make("MUL", DType.index, [x, y])
    slot(node).canonical = true
    return node
  }, sorted[0]!)
}

const mulTerms = (a: Sum, b: Sum): Sum => {
  let result = addScaled(scale(withoutConstant(a), b.constant), withoutConstant(b), a.constant)
  result = addScaled(result, one, a.constant * b.constant)
  for (let i = 0; i < a.terms.length; i++) {
    for (let j = 0; j < b.terms.length; j++) {
      const term = product([...factors(a.terms[i]!), ...factors(b.terms[j]!)])
      result = addScaled(result, atom(term), a.coefficients[i]! * b.coefficients[j]!)
    }
  }
  return result
}

export const mul = (a: Sum, b: Sum): Sum =>
  isConstant(b) ? scale(a, b.constant) : isConstant(a) ? scale(b, a.constant) : mulTerms(a, b)

/** Same terms, same coefficients, same constant. */
export const equals = (a: Sum, b: Sum): boolean =>
  a.constant === b.constant && a.terms.length === b.terms.length &&
  a.terms.every((t, i) => t === b.terms[i] && a.coefficients[i] === b.coefficients[i])

export const EqSum: Eq<Sum> = { equals }

/** The ring of index expressions in normal form: equality is equality of polynomials. */
export const RingSum: Ring<Sum> = { zero, one, add, mul, sub }

// a product of longer sums stays a product: distributing it would cost more operations than it saves
const maxDistributed = 16
const size = (a: Sum): number => a.terms.length + (a.constant === 0 ? 0 : 1)

/** Operations that a normal form interprets; all others are atoms. */
const isTransparent = (node: UOp): boolean => {
  if (node.dtype !== DType.index) return false
  switch (node.op) {
    case "ADD":
    case "SUB":
    case "NEG":
    case "MUL":
      return true
    case "SHL":
      return isShift(node.src[1]!)
    default:
      return false
  }
}

/** A constant amount that a 32-bit shift can have. */
export const isShift = (node: UOp): boolean =>
  node.op === "CONST" && typeof node.arg === "number" && node.arg >= 0 && node.arg < 31

const derive = (node: UOp): Sum => {
  if (node.op === "CONST") return constant(Number(node.arg))
  if (!isTransparent(node)) return atom(node)
  const a = slot(node.src[0]!).sum!
  if (node.op === "NEG") return scale(a, -1)
  if (node.op === "SHL") return scale(a, 2 ** Number(node.src[1]!.arg))
  const b = slot(node.src[1]!).sum!
  switch (node.op) {
    case "ADD":
      return add(a, b)
    case "SUB":
      return sub(a, b)
    default:
      if (isConstant(a) || isConstant(b) || size(a) * size(b) <= maxDistributed) return mul(a, b)
      return atom(product([...factors(toNode(a, node.arena)), ...factors(toNode(b, node.arena))]))
  }
}

const isSeen = (node: UOp): boolean => {
  const cache = slot(node)
  if (cache.sum === undefined && !isTransparent(node)) cache.sum = derive(node)
  return cache.sum !== undefined
}

/** The normal form of an index expression. */
export const of = (root: UOp): Sum => {
  const known = slot(root).sum
  if (known !== undefined) return known
  for (const node of unseen(root, isSeen)) slot(node).sum = derive(node)
  return slot(root).sum!
}

/** The sum as a node: terms from left to right, the constant last. */
export const toNode = (sum: Sum, arena: Arena): UOp => {
  const index = (op: "ADD" | "MUL", a: UOp, b: UOp): UOp => {
    const node = arena.make(op, DType.index, [a, b])
    slot(node).canonical = true
    return node
  }
  const int = (value: number): UOp => arena.make("CONST", DType.index, [], value)
  const { coefficients, terms } = sum
  if (terms.length === 0) return int(sum.constant)
  let node: UOp | undefined
  for (let i = 0; i < terms.length; i++) {
    const c = coefficients[i]!
    const term = c === 1 ? terms[i]! : index("MUL", terms[i]!, int(c))
    node = node === undefined ? term : index("ADD", node, term)
  }
  if (sum.constant !== 0) node = index("ADD", node!, int(sum.constant))
  slot(node!).sum ??= sum
  return node!
}

/** The interval of the sum's values, with terms taken as independent. */
export const bounds = (sum: Sum): Range => {
  let min = sum.constant
  let max = sum.constant
  for (let i = 0; i < sum.terms.length; i++) {
    const c = sum.coefficients[i]!
    const b = Bounds.of(sum.terms[i]!)
    min += c > 0 ? c * b.min : c * b.max
    max += c > 0 ? c * b.max : c * b.min
  }
  return { min: min + 0, max: max + 0 }
}

const gcd2 = (a: number, b: number): number => b === 0 ? Math.abs(a) : gcd2(b, a % b)

/** Greatest common divisor of numbers; 0 for none. */
export const gcd = (...numbers: ReadonlyArray<number>): number => numbers.reduce(gcd2, 0)

/** The content of the polynomial: the greatest common divisor of the coefficients, without the constant. */
export const content = (sum: Sum): number => gcd(...sum.coefficients)

/** The largest number known to divide a term, whatever its atoms are. */
const termDivisor = (term: UOp): number => factors(term).reduce((n, f) => n * (f.op === "MUL" ? 1 : atomDivisor(f)), 1)

const atomDivisor = (node: UOp): number => {
  switch (node.op) {
    case "CONST":
      return Math.abs(Number(node.arg))
    case "MAX":
    case "MIN":
    case "WHERE":
      return gcd(...node.src.slice(-2).map(divisor))
    case "FLOORMOD":
      return gcd(divisor(node.src[0]!), divisor(node.src[1]!))
    default:
      return 1
  }
}

/** The largest constant known to divide an index expression; 0 for the constant 0. */
export const divisor = (node: UOp): number => {
  const sum = of(node)
  return gcd(sum.constant, ...sum.coefficients.map((c, i) => c * termDivisor(sum.terms[i]!)))
}

/**
 * A lower bound that knows the largest value of loop variables with symbolic sizes: a range of size `n` is at most
 * `n - 1`, so `n - r` is at least 1.
 */
export const lowerBound = (sum: Sum): number => {
  let relaxed = sum
  // each step removes one symbolic loop variable; sizes may depend on outer loops
  for (let step = 0; step < sum.terms.length + 4; step++) {
    const i = relaxed.terms.findIndex((t, i) => relaxed.coefficients[i]! < 0 && symbolicRange(t) !== undefined)
    if (i < 0) break
    const term = relaxed.terms[i]!
    const c = relaxed.coefficients[i]!
    const range = symbolicRange(term)!
    const rest = factors(term).filter((f) => f !== range)
    const largest = addScaled(of(range.src[0]!), one, -1)
    const replacement = rest.length === 0 ? largest : mul(largest, atom(product(rest)))
    relaxed = addScaled(addScaled(relaxed, atom(term), -c), replacement, c)
  }
  return Math.max(bounds(relaxed).min, bounds(sum).min)
}

/** The loop variable of a term, of symbolic size, if replacing it by its largest value can only raise the term. */
const symbolicRange = (term: UOp): UOp | undefined => {
  const atoms = factors(term)
  const range = atoms.findLast((f) => f.op === "RANGE" && f.src[0]!.op !== "CONST")
  if (range === undefined) return undefined
  let found = false
  for (const f of atoms) {
    if (f === range && !found) found = true
    else if (f === range || Bounds.of(f).min < 0) return undefined
  }
  return range
}
