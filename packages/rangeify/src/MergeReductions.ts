import { rangeArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { graphRewrite, type Tracing } from "@tg/pattern-matcher/GraphRewrite"
import { make, rule, rules } from "@tg/pattern-matcher/PatternMatcher"
import * as P from "@tg/pattern-matcher/UPat"

const sizesOf = (reduction: UOp): string =>
  reduction.src.slice(1).map((r) => `${rangeArg(r).axis}${r.src[0]!.id}`).join()

/** A reduction, and an earlier one whose loops it can share. */
interface Pair {
  readonly reduction: UOp
  readonly head: UOp
}

const none: ReadonlySet<UOp> = new Set()

/** The first reduction under an END that runs over loops of its own and could run over those of an earlier one. */
const firstPair = (end: UOp): Pair | undefined => {
  /** Reductions that share loops. Sources come first, so only a later one can need an earlier one. */
  const groups: Array<{ readonly sizes: string; readonly members: [UOp, ...Array<UOp>] }> = []
  for (const reduction of toposort(end).filter((n) => n.op === "REDUCE")) {
    const sizes = sizesOf(reduction)
    const alike = groups.filter((group) => group.sizes === sizes)
    const under = alike.length === 0 ? none : new Set(toposort(reduction))
    const group = alike.find(({ members }) => !members.some((r) => under.has(r)))?.members
    if (group === undefined) groups.push({ sizes, members: [reduction] })
    else if (reduction.src.slice(1).every((r, i) => r === group[0].src[1 + i])) group.push(reduction)
    else return { reduction, head: group[0] }
  }
  return undefined
}

/** Loop fusion of reductions, within each END: loops do not cross barriers. */
export const merging = rules("merge", [
  rule("reductions", P.node("END"), (_, end) => {
    const pair = firstPair(end)
    if (pair === undefined) return undefined
    const { head, reduction } = pair
    const renamed = new Map(reduction.src.slice(1).map((r, i) => [r, head.src[1 + i]!]))
    return substitute(end, new Map([[reduction, substitute(reduction, renamed)]]))
  })
])

const matcher = make(merging)

/**
 * Loop fusion of independent reductions with equal trip counts: they get the same loop variables, so they share loops and common
 * loads. Gate and up projections of one row read the activation once.
 */
export const mergeReductions = (kernel: UOp, options: Tracing = {}): UOp =>
  graphRewrite(kernel, matcher, { ...options, enter: (node) => node.op !== "END" })
