import { rangeArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"

const sizesOf = (reduction: UOp): string =>
  reduction.src.slice(1).map((r) => `${rangeArg(r).axis}${r.src[0]!.id}`).join()

/**
 * Reductions of one kernel that run over loops of the same lengths and do not need each other's results get the same
 * loop variables: they then share their loops, and the loads that they have in common. Gate and up projections of one
 * row read the activation once.
 */
export const mergeReductions = (kernel: UOp): UOp => {
  const reductions = toposort(kernel).filter((n) => n.op === "REDUCE")
  const heads: Array<{ readonly reduction: UOp; readonly under: ReadonlySet<UOp> }> = []
  for (const reduction of reductions) {
    const under = new Set(toposort(reduction))
    const head = heads.find((h) => sizesOf(h.reduction) === sizesOf(reduction) && !under.has(h.reduction))
    if (head === undefined) {
      heads.push({ reduction, under })
      continue
    }
    const own = reduction.src.slice(1)
    const shared = head.reduction.src.slice(1)
    if (own.every((r, i) => r === shared[i])) continue
    const renamed = new Map(own.map((r, i) => [r, shared[i]!]))
    const merged = substitute(kernel, new Map([[reduction, substitute(reduction, renamed)]]))
    return mergeReductions(merged)
  }
  return kernel
}
