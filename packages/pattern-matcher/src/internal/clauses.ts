import * as Bounds from "@tg/core-uop/Bounds"
import type { Range, UOp } from "@tg/core-uop/UOp"
import * as Sum from "../Sum.ts"
import { isIndex, valueOf } from "./values.ts"

/** A linear inequality about index expressions: `sum <= 0`. */
export type Fact = Sum.Sum

/** The parts of a conjunction (or, with "OR", of a disjunction). */
export const flatten = (condition: UOp, op: "AND" | "OR" = "AND"): ReadonlyArray<UOp> => {
  const parts = new Set<UOp>()
  const stack = [condition]
  while (stack.length > 0) {
    const node = stack.pop()!
    if (node.op === op && node.dtype.scalar === "bool") stack.push(node.src[1]!, node.src[0]!)
    else parts.add(node)
  }
  return [...parts]
}

/** The operand of a boolean negation. */
export const negated = (node: UOp): UOp | undefined =>
  node.op === "XOR" && node.dtype.scalar === "bool" && valueOf(node.src[1]!) === true ? node.src[0]! : undefined

/** Whether a clause, or what it negates, compares index expressions. */
export const isIndexClause = (clause: UOp): boolean => {
  const comparison = negated(clause) ?? clause
  return (comparison.op === "CMPLT" || comparison.op === "CMPEQ") && isIndex(comparison.src[0]!)
}

/** The inequalities that a clause implies; empty when it implies none of this form. */
export const factsOf = (clause: UOp): ReadonlyArray<Fact> => {
  if (!isIndexClause(clause)) return []
  const inner = negated(clause)
  const comparison = inner ?? clause
  const difference = Sum.sub(Sum.of(comparison.src[0]!), Sum.of(comparison.src[1]!))
  if (comparison.op === "CMPEQ") return inner === undefined ? [difference, Sum.scale(difference, -1)] : []
  // a < b is a - b + 1 <= 0; its negation is b - a <= 0
  return [inner === undefined ? Sum.add(difference, Sum.one) : Sum.scale(difference, -1)]
}

/** Bounds of terms under some facts; undefined when the facts contradict each other. */
export const narrow = (facts: ReadonlyArray<Fact>): ReadonlyMap<UOp, Range> | undefined => {
  const known = new Map<UOp, Range>()
  const range = (term: UOp): Range => known.get(term) ?? Bounds.of(term)
  // bounds propagation: facts share terms, so one may tighten another; a few rounds suffice in practice
  for (let round = 0; round < 3; round++) {
    let changed = false
    for (const fact of facts) {
      let least = fact.constant
      for (let i = 0; i < fact.terms.length; i++) least += lowest(fact.coefficients[i]!, range(fact.terms[i]!))
      if (least > 0) return undefined
      for (let i = 0; i < fact.terms.length; i++) {
        const c = fact.coefficients[i]!
        const before = range(fact.terms[i]!)
        // c * term <= lowest(c * term) - least
        const most = lowest(c, before) - least
        const after = c > 0
          ? { min: before.min, max: Math.min(before.max, Math.floor(most / c)) }
          : { min: Math.max(before.min, Math.ceil(most / c)), max: before.max }
        if (after.min > after.max) return undefined
        if (after.min === before.min && after.max === before.max) continue
        known.set(fact.terms[i]!, after)
        changed = true
      }
    }
    if (!changed) break
  }
  return known
}

const lowest = (c: number, r: Range): number => c > 0 ? c * r.min : c * r.max

/** The largest value of a sum when some terms have tighter bounds. */
export const highest = (sum: Sum.Sum, known: ReadonlyMap<UOp, Range>): number => {
  let result = sum.constant
  for (let i = 0; i < sum.terms.length; i++) {
    result -= lowest(-sum.coefficients[i]!, known.get(sum.terms[i]!) ?? Bounds.of(sum.terms[i]!))
  }
  return result
}

/** Whether facts imply another one, by bounds or by one fact and bounds: sound, not complete. */
const implies = (facts: ReadonlyArray<Fact>, known: ReadonlyMap<UOp, Range>, goal: Fact): boolean => {
  if (highest(goal, known) <= 0) return true
  for (const fact of facts) {
    const rest = Sum.sub(goal, fact)
    if (highest(rest, known) <= 0) return true
  }
  return false
}

/** Whether facts imply a clause (true), imply its negation (false), or neither. */
export const decide = (facts: ReadonlyArray<Fact>, clause: UOp): boolean | undefined => {
  const known = narrow(facts)
  if (known === undefined || !isIndexClause(clause)) return undefined
  const goals = factsOf(clause)
  if (goals.length > 0 && goals.every((goal) => implies(facts, known, goal))) return true
  // a goal g <= 0 fails when 1 - g <= 0
  if (goals.some((goal) => implies(facts, known, Sum.add(Sum.scale(goal, -1), Sum.one)))) return false
  if (goals.length > 0) return undefined
  const equality = factsOf(negated(clause)!)
  if (equality.length === 2 && equality.every((goal) => implies(facts, known, goal))) return false
  return equality.some((goal) => implies(facts, known, Sum.add(Sum.scale(goal, -1), Sum.one))) ? true : undefined
}
