/**
 * The values that an index can have where it is used. `Bounds` takes the terms of a sum as independent, and knows nothing of the branches around a
 * use; here a quotient is taken together with what it divides, and conditions that hold count.
 */
import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import { type Range, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Sum from "./Sum.ts"

/** The values of terms and of sums of several terms (`Sum`), where they are fewer than `Bounds` says. */
export interface Facts {
  readonly terms: ReadonlyMap<UOp, Range>
  readonly sums: ReadonlyArray<Fact>
}

/** The values of a sum without a constant. */
interface Fact {
  readonly sum: Sum.Sum
  readonly range: Range
}

const { meet } = Bounds.Lattice
const unknown: Facts = { terms: new Map(), sums: [] }

/** Registers have other values later. */
const changes = (term: UOp): boolean => toposort(term).some(({ op }) => op === "REG")

const isTrue = ({ arg, op }: UOp): boolean => op === "CONST" && Number(arg) === 1

/** What is known where all of these conditions hold. */
export const factsOf = (conditions: ReadonlyArray<UOp>): Facts => {
  const found = new Map<UOp, Range>()
  const sums: Array<Fact> = []
  const learn = (node: UOp, range: Range): void => {
    if (node.dtype !== DType.index) return
    const sum = Sum.of(node)
    const { coefficients, constant, terms } = sum
    const [term, factor] = [terms[0], coefficients[0]]
    if (term === undefined || factor === undefined || terms.some(changes)) return
    if (terms.length > 1) {
      const { max, min } = meet(range, Bounds.of(node))
      sums.push({ sum: Sum.withoutConstant(sum), range: { min: min - constant, max: max - constant } })
      return
    }
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
  return { terms: found, sums }
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
  const known = meet(Bounds.of(term), facts.terms.get(term) ?? Bounds.all)
  if (term.dtype !== DType.index) return known
  const quotient = quotientOf(term)
  if (quotient !== undefined) {
    const { max, min } = of(quotient.x, facts)
    return meet(known, { min: Math.floor(min / quotient.by), max: Math.floor(max / quotient.by) })
  }
  if ((term.op === "MAX" || term.op === "MIN") && term.src[1]!.op === "CONST") {
    const choose = term.op === "MAX" ? Math.max : Math.min
    const [{ max, min }, bound] = [ofPart(partOf(term.src[0]!), facts), Number(term.src[1]!.arg)]
    return meet(known, { min: choose(min, bound), max: choose(max, bound) })
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

const partOf = (node: UOp): Part => ({ sum: Sum.of(node), rest: { min: 0, max: 0 } })

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

/** The same with what is known of a sum in place of its terms: as often as the first of them is in it. */
const withFact = ({ rest, sum }: Part, fact: Fact): Part | undefined => {
  const m = Sum.coefficientOf(sum, fact.sum.terms[0]!) / fact.sum.coefficients[0]!
  return m === 0 ? undefined : { sum: Sum.addScaled(sum, fact.sum, -m), rest: plus(rest, fact.range, m) }
}

const isNarrower = (a: Range, b: Range): boolean => a.max - a.min < b.max - b.min

/** The values of an index. */
export const of = (node: UOp, facts: Facts = unknown): Range => {
  let part = partOf(node)
  let range = meet(Bounds.of(node), ofPart(part, facts))
  // a fact brings terms of its own, of which it may be a fact again
  const once = { terms: facts.terms, sums: [] }
  const take = (next: Part | undefined): void => {
    if (next === undefined) return
    const own = ofPart(next, once)
    if (!isNarrower(own, range)) return
    part = next
    range = meet(range, own)
  }
  for (const fact of facts.sums) take(withFact(part, fact))
  for (const term of part.sum.terms) take(without(part, term))
  return range
}
