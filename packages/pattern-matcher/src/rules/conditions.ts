import type { UOp } from "@tg/core-uop/UOp"
import { decide, factsOf, flatten, isIndexClause } from "../internal/clauses.ts"
import { compare } from "../internal/rank.ts"
import { under, unless } from "../internal/under.ts"
import { alu, constantLike, isBool, isIndex, not } from "../internal/values.ts"
import { rule, rules } from "../PatternMatcher.ts"
import * as P from "../UPat.ts"

/** The simplifier itself, for rules that simplify under a condition. */
export interface Simplifier {
  readonly simplify: (root: UOp) => UOp
}

const chain = (op: "AND" | "OR", clauses: ReadonlyArray<UOp>): UOp => clauses.reduce((a, b) => alu(op, a, b))

/** Drops clauses that the others imply; a contradiction is false. */
const conjunction = (node: UOp): UOp | undefined => {
  let clauses = flatten(node)
  if (!clauses.some(isIndexClause)) return undefined
  for (let i = 0; i < clauses.length; i++) {
    const rest = clauses.filter((_, j) => j !== i)
    const value = decide(rest.flatMap(factsOf), clauses[i]!)
    if (value === false) return constantLike(node, false)
    if (value !== true) continue
    clauses = rest
    i--
  }
  return chain("AND", clauses.every(isIndexClause) ? clauses.toSorted(compare) : clauses)
}

/** Drops clauses that imply another one; two that cover everything are true. */
const disjunction = (node: UOp): UOp | undefined => {
  let clauses = flatten(node, "OR")
  if (!clauses.every(isIndexClause)) return undefined
  for (let i = 0; i < clauses.length; i++) {
    const rest = clauses.filter((_, j) => j !== i)
    const clause = clauses[i]!
    if (rest.some((other) => decide(factsOf(not(clause)), other) === true)) return constantLike(node, true)
    if (!rest.some((other) => decide(factsOf(clause), other) === true)) continue
    clauses = rest
    i--
  }
  return chain("OR", clauses.toSorted(compare))
}

/** Redundant clauses, and index expressions simplified under their conditions. */
export const conditions = rules<Simplifier>("conditions", [
  rule("clauses", P.and(P.anything, P.anything), (_, node) => conjunction(node), { when: isBool }),
  rule("alternatives", P.or(P.anything, P.anything), (_, node) => disjunction(node), { when: isBool }),
  rule(
    "gated-index",
    P.index(P.any("buffer"), P.any("at"), P.any("gate")),
    ({ at, buffer, gate }, node, { simplify }: Simplifier) =>
      !isIndex(at) ? undefined : node.with([buffer, under(gate, at, simplify), gate])
  ),
  rule(
    "branches",
    P.where(P.any("c"), P.any("a"), P.any("b")),
    ({ a, b, c }, node, { simplify }: Simplifier) => node.with([c, under(c, a, simplify), unless(c, b, simplify)]),
    { when: (node) => isIndex(node) || isBool(node) }
  )
])
