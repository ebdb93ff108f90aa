import { rangeArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"

const sizesOf = (reduction: UOp): string =>
  reduction.src.slice(1).map((r) => `${rangeArg(r).axis}${r.src[0]!.id}`).join()

/** Merges within each END: what runs before a barrier has no loops in common with what runs behind it. */
export const mergeReductions = (kernel: UOp): UOp => kernel.with(kernel.src.map(mergeWithin))

/**
 * Reductions that run over loops of the same lengths and do not need each other's results get the same
 * loop variables: they then share their loops, and the loads that they have in common. Gate and up projections of one
 * row read the activation once.
 */
const mergeWithin = (kernel: UOp): UOp => {
  const reductions = toposort(kernel).filter((n) => n.op === "REDUCE")
  /** Reductions that share loops. Sources come first, so only a later one can need an earlier one. */
  const heads: Array<Array<UOp>> = []
  for (const reduction of reductions) {
    const under = new Set(toposort(reduction))
    const head = heads.find(([first, ...others]) =>
      sizesOf(first!) === sizesOf(reduction) && ![first!, ...others].some((r) => under.has(r))
    )
    if (head === undefined) {
      heads.push([reduction])
      continue
    }
    const own = reduction.src.slice(1)
    const shared = head[0]!.src.slice(1)
    if (own.every((r, i) => r === shared[i])) {
      head.push(reduction)
      continue
    }
    const renamed = new Map(own.map((r, i) => [r, shared[i]!]))
    const merged = substitute(kernel, new Map([[reduction, substitute(reduction, renamed)]]))
    return mergeWithin(merged)
  }
  return kernel
}
