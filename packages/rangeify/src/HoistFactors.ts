import * as DType from "@tg/core-uop/DType"
import { openRanges, reduceArg, type UOp } from "@tg/core-uop/UOp"
import { graphRewrite, type Tracing } from "@tg/pattern-matcher/GraphRewrite"
import { make, rule, rules } from "@tg/pattern-matcher/PatternMatcher"
import * as P from "@tg/pattern-matcher/UPat"

const factorsOf = (x: UOp): ReadonlyArray<UOp> => x.op === "MUL" ? x.src.flatMap(factorsOf) : [x]

const product = (factors: ReadonlyArray<UOp>): UOp => factors.reduce((a, b) => a.arena.make("MUL", a.dtype, [a, b]))

const isSum = (node: UOp): boolean => reduceArg(node).op === "ADD" && node.dtype !== DType.index

/** The factors of the summand that vary in a loop of the sum, and the invariant ones. */
const divided = (sum: UOp): { readonly inside: ReadonlyArray<UOp>; readonly outside: ReadonlyArray<UOp> } => {
  const [x, ...ranges] = sum.src
  const { inside = [], outside = [] } = Object.groupBy(factorsOf(x!), (factor) => {
    const open = openRanges(factor)
    return ranges.some((range) => open.has(range)) ? "inside" : "outside"
  })
  return { inside, outside }
}

/** Loop-invariant code motion out of sums. */
export const hoisting = rules("hoist", [
  // sum_k s x[k] = s sum_k x[k]
  rule("invariant-factors", P.startsWith("REDUCE", P.node("MUL")), (_, sum) => {
    const { inside, outside } = divided(sum)
    if (outside.length === 0 || inside.length === 0) return undefined
    return product([sum.with([product(inside), ...sum.src.slice(1)]), ...outside])
  }, { when: isSum })
])

const matcher = make(hoisting)

/**
 * `sum_k s x[k]` becomes `s sum_k x[k]`: loop-invariant factors of a sum are applied once, behind it (distributivity). So a norm's
 * scale is applied behind the product that follows, which need not wait for it. Integers wrap alike; floats are rounded differently,
 * as by another order of summation.
 */
export const hoistFactors = (kernel: UOp, options: Tracing = {}): UOp => graphRewrite(kernel, matcher, options)
