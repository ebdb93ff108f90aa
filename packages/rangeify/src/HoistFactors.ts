import * as DType from "@tg/core-uop/DType"
import { openRanges, reduceArg, toposort, type UOp } from "@tg/core-uop/UOp"

const factorsOf = (x: UOp): ReadonlyArray<UOp> => x.op === "MUL" ? x.src.flatMap(factorsOf) : [x]

const product = (factors: ReadonlyArray<UOp>): UOp => factors.reduce((a, b) => a.arena.make("MUL", a.dtype, [a, b]))

/**
 * `sum_k s x[k]` becomes `s sum_k x[k]`: factors that no loop of a sum changes are applied once, behind it. A norm's
 * scale is then no part of the product that follows, and the sum need not wait for it. Integers wrap alike; floats are
 * rounded elsewhere, as by any other order of a sum.
 */
export const hoistFactors = (kernel: UOp): UOp => {
  const done = new Map<UOp, UOp>()
  for (const node of toposort(kernel)) {
    const made = node.with(node.src.map((s) => done.get(s)!))
    done.set(node, made.op === "REDUCE" && reduceArg(made).op === "ADD" ? hoist(made) : made)
  }
  return done.get(kernel)!
}

const hoist = (sum: UOp): UOp => {
  const [x, ...ranges] = sum.src
  if (x!.op !== "MUL" || x!.dtype === DType.index) return sum
  const factors = factorsOf(x!)
  const isFixed = (factor: UOp): boolean => {
    const open = openRanges(factor)
    return !ranges.some((range) => open.has(range))
  }
  const fixed = factors.filter(isFixed)
  if (fixed.length === 0 || fixed.length === factors.length) return sum
  const rest = sum.with([product(factors.filter((factor) => !isFixed(factor))), ...ranges])
  return product([rest, ...fixed])
}
