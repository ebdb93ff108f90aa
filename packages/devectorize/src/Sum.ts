import * as Expr from "@tg/core-uop/Expr"
import * as DType from "@tg/core-uop/DType"
import type { UOp } from "@tg/core-uop/UOp"

/** A product as its factors. */
type Factors = ReadonlyArray<UOp>

// A limit on nesting: powers by repeated squaring have exponentially many factors.
const maxDepth = 6

const factorsOf = (node: UOp, depth = maxDepth): Factors =>
  node.op === "MUL" && depth > 0 ? node.src.flatMap((s) => factorsOf(s, depth - 1)) : [node]

const without = (factors: Factors, factor: UOp): Factors => {
  const at = factors.indexOf(factor)
  return factors.filter((_, i) => i !== at)
}

/** The factor that most terms share, if two or more do and it is not the whole of a term. */
const commonest = (terms: ReadonlyArray<Factors>): UOp | undefined => {
  const counts = new Map<UOp, number>()
  for (const term of terms) {
    if (term.length > 1) { for (const factor of new Set(term)) counts.set(factor, (counts.get(factor) ?? 0) + 1) }
  }
  const [best] = [...counts].toSorted((a, b) => b[1] - a[1])
  return best !== undefined && best[1] > 1 ? best[0] : undefined
}

/** Tree reduction: a dependence chain of logarithmic length. */
export const tree = <A>(values: ReadonlyArray<A>, combine: (a: A, b: A) => A): A => {
  let level = values
  while (level.length > 1) {
    level = Array.from(
      { length: Math.ceil(level.length / 2) },
      (_, i) => 2 * i + 1 < level.length ? combine(level[2 * i]!, level[2 * i + 1]!) : level[2 * i]!
    )
  }
  return level[0]!
}

const sumOf = (terms: ReadonlyArray<Factors>): UOp => {
  const factor = commonest(terms)
  if (factor === undefined) return tree(terms.map((term) => tree(term, Expr.mul)), Expr.add)
  const inside = terms.filter((term) => term.length > 1 && term.includes(factor))
  const outside = terms.filter((term) => !inside.includes(term))
  const product = Expr.mul(sumOf(inside.map((term) => without(term, factor))), factor)
  return outside.length === 0 ? product : Expr.add(product, sumOf(outside))
}

/**
 * The sum of the values, with common factors of floats taken out, `a d + b d = (a + b) d`: the scale of a block of weights is then
 * applied once to the block's sum. A reassociation, as any order of summation is.
 */
export const sum = (values: ReadonlyArray<UOp>): UOp =>
  DType.isFloat(values[0]!.dtype) ? sumOf(values.map((value) => factorsOf(value))) : tree(values, Expr.add)
