import * as Bounds from "@tg/core-uop/Bounds"
import type { Range, UOp } from "@tg/core-uop/UOp"
import * as Sum from "../Sum.ts"
import { type Fact, factsOf, flatten, highest, narrow } from "./clauses.ts"

/** The least upper bound of `sum` that follows from the bounds of its terms and from each single fact about them. */
const most = (sum: Sum.Sum, facts: ReadonlyArray<Fact>, known: ReadonlyMap<UOp, Range>): number => {
  let least = highest(sum, known)
  for (const fact of facts) {
    const [term] = fact.terms
    if (term === undefined) continue
    // the sum is m * fact + rest, and the fact is not above 0
    const m = Sum.coefficientOf(sum, term) / fact.coefficients[0]!
    if (m > 0) least = Math.min(least, highest(Sum.addScaled(sum, fact, -m), known))
  }
  return least
}

/** The bounds of an index expression where a condition (both in normal form) holds; any, if it never holds. */
export const boundsUnder = (condition: UOp, x: UOp): Range => {
  const facts = flatten(condition).flatMap(factsOf)
  const known = narrow(facts)
  const free = Bounds.of(x)
  if (known === undefined) return { min: free.min, max: free.min }
  const sum = Sum.of(x)
  const max = Math.min(free.max, most(sum, facts, known))
  return { min: Math.min(max, Math.max(free.min, -most(Sum.scale(sum, -1), facts, known))), max }
}
