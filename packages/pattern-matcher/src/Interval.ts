/**
 * The values that an index can have where it is used. `Bounds` takes the terms of a sum as independent, and knows nothing of the branches around a
 * use; here a quotient is taken together with what it divides, and conditions that hold count.
 */
import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import { type Range, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Sum from "./Sum.ts"

/** The values of terms (`Sum`), where they are fewer than `Bounds` says. */
export type Facts = ReadonlyMap<UOp, Range>

const { meet } = Bounds.Lattice
const unknown: Facts = new Map()

/** Registers have other values later. */
const changes = (term: UOp): boolean => toposort(term).some(({ op }) => op === "REG")

const isTrue = ({ arg, op }: UOp): boolean => op === "CONST" && Number(arg) === 1

/** What is known where all of these conditions hold. */
export const factsOf = (conditions: ReadonlyArray<UOp>): Facts => {
  const found = new Map<UOp, Range>()
  const learn = (node: UOp, range: Range): void => {
    if (node.dtype !== DType.index) return
    const { coefficients, constant, terms } = Sum.of(node)
    const [term, factor] = [terms[0], coefficients[0]]
    if (terms.length !== 1 || term === undefined || factor === undefined || changes(term)) return
    const ends = [(range.min - constant) / factor, (range.max - constant) / factor]
    const own = { min: Math.ceil(Math.min(...ends)), max: Math.floor(Math.max(...ends)) }
    found.set(term, meet(found.get(term) ?? Bounds.of(term), own))
  }
  const visit = (condition: UOp, holds: boolean): void => {
    const [a, b] = condition.src
    if (condition.op === "XOR" && isTrue(b!)) return visit(a!, !holds)
    if (condition.op === (holds ? "AND" : "OR") && condition.dtype === DType.bool) {
      return condition.src.forEach((own) => visit(own, holds))
    }
    if (condition.op !== "CMPLT") return
    const [of, than] = [Bounds.of(a!), Bounds.of(b!)]
    learn(a!, holds ? { min: -Infinity, max: than.max - 1 } : { min: than.min, max: Infinity })
    learn(b!, holds ? { min: of.min + 1, max: Infinity } : { min: -Infinity, max: of.max })
  }
  for (const condition of conditions) visit(condition, true)
  return found
}

/** `x / by`, rounded down, as which a term is written. */
const quotientOf = ({ op, src: [x, c] }: UOp): { readonly x: UOp; readonly by: number } | undefined => {
  if (c?.op !== "CONST") return undefined
  if (op === "FLOORDIV" && Number(c.arg) > 0) return { x: x!, by: Number(c.arg) }
  return op === "SHR" && Sum.isShift(c) ? { x: x!, by: 2 ** Number(c.arg) } : undefined
}

/** The size of a remainder `0 .. size - 1`, as which a term is written. */
const remainderOf = ({ op, src: [, c] }: UOp): number | undefined => {
  if (c?.op !== "CONST") return undefined
  const value = Number(c.arg)
  if (op === "FLOORMOD" && value > 0) return value
  return op === "AND" && value >= 0 && Number.isInteger(Math.log2(value + 1)) ? value + 1 : undefined
}

const ofTerm = (term: UOp, facts: Facts): Range => {
  const known = meet(Bounds.of(term), facts.get(term) ?? Bounds.all)
  if (term.dtype !== DType.index) return known
  const quotient = quotientOf(term)
  if (quotient !== undefined) {
    const { max, min } = of(quotient.x, facts)
    return meet(known, { min: Math.floor(min / quotient.by), max: Math.floor(max / quotient.by) })
  }
  const size = remainderOf(term)
  if (size === undefined) return known
  const whole = of(term.src[0]!, facts)
  return whole.min >= 0 && whole.max < size ? meet(known, whole) : known
}

/** `a + factor * b`, of ranges. */
const plus = (a: Range, b: Range, factor: number): Range => ({
  min: a.min + factor * (factor > 0 ? b.min : b.max),
  max: a.max + factor * (factor > 0 ? b.max : b.min)
})

/** A sum, and what is added to it that is no term of it. */
interface Part {
  readonly sum: Sum.Sum
  readonly rest: Range
}

const ofPart = ({ rest, sum }: Part, facts: Facts): Range =>
  sum.terms.reduce(
    (range, term, i) => plus(range, ofTerm(term, facts), sum.coefficients[i]!),
    plus(rest, { min: 1, max: 1 }, sum.constant)
  )

/** The same with `m x = m by (x / by) + m (x mod by)` for a quotient in it, with the m that takes the first term of x out of the sum. */
const without = ({ rest, sum }: Part, term: UOp): Part | undefined => {
  const quotient = term.dtype === DType.index ? quotientOf(term) : undefined
  const divided = quotient && Sum.of(quotient.x)
  const first = divided?.terms[0]
  if (quotient === undefined || divided === undefined || first === undefined) return undefined
  const m = Sum.coefficientOf(sum, first) / divided.coefficients[0]!
  if (m === 0) return undefined
  const { by } = quotient
  return {
    sum: Sum.addScaled(Sum.addScaled(sum, divided, -m), Sum.atom(term), m * by),
    rest: plus(rest, { min: 0, max: by - 1 }, m)
  }
}

const isNarrower = (a: Range, b: Range): boolean => a.max - a.min < b.max - b.min

/** The values of an index. */
export const of = (node: UOp, facts: Facts = unknown): Range => {
  let part: Part = { sum: Sum.of(node), rest: { min: 0, max: 0 } }
  let range = meet(Bounds.of(node), ofPart(part, facts))
  for (const term of part.sum.terms) {
    const next = without(part, term)
    if (next === undefined) continue
    const own = ofPart(next, facts)
    if (!isNarrower(own, range)) continue
    part = next
    range = meet(range, own)
  }
  return range
}
