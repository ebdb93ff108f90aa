/** Index-set splitting: elements behind the last one of what a kernel mostly computes get an END of their own. */
import { endOf, fixedSize, storeOf } from "@tg/core-uop/View"
import * as Expr from "@tg/core-uop/Expr"
import { isAccumulating, rangeArg, toposort, type UOp } from "@tg/core-uop/UOp"
import { loopsBetween } from "@tg/core-uop/Workgroup"
import { replaceRanges } from "./SplitRanges.ts"

/** A loop of which the first iterations, `most`, compute something else than the others. */
interface Seam {
  readonly range: UOp
  readonly most: number
}

const reductions = (node: UOp): ReadonlyArray<UOp> => toposort(node).filter(({ op }) => op === "REDUCE")

/** Where the value of an END changes: from what needs a reduction to what does without it. */
const seamOf = (end: UOp, between: ReadonlySet<UOp>): Seam | undefined => {
  const { loops, stores: [store, ...others] } = endOf(end)
  if (others.length > 0 || isAccumulating(store!)) return undefined
  const { value } = storeOf(store!)
  const [condition, first, rest] = value.op === "WHERE" ? value.src : []
  const [range, bound] = condition?.op === "CMPLT" ? condition.src : []
  if (range === undefined || !loops.includes(range) || between.has(range) || !bound!.is("CONST")) return undefined
  // rows of the same workgroup
  const isShared = loops.slice(0, loops.indexOf(range)).some((loop) => !between.has(loop))
  const size = fixedSize(range)
  const most = Number(bound!.arg)
  const later = new Set(reductions(rest!))
  const isSeam = isShared && size !== undefined && most < size && 2 * most > size &&
    reductions(first!).some((reduction) => !later.has(reduction))
  return isSeam ? { range, most } : undefined
}

/**
 * Of a kernel that stages values, the columns of a result that are no sums like all others, as a maximum and a sum beside the columns
 * of a mix: they get an END of their own in the same workgroups, so that the loop of the others has neither their conditions nor their
 * additions, and divides evenly among threads.
 */
export const peel = (kernel: UOp): UOp => {
  const between = loopsBetween(kernel)
  const end = kernel.src.at(-1)!
  const seam = between.size === 0 ? undefined : seamOf(end, between)
  if (seam === undefined) return kernel
  const { arena } = kernel
  const { most, range } = seam
  let next = 1 + Math.max(...toposort(kernel).filter((node) => node.op === "RANGE").map((node) => rangeArg(node).id))
  const first = Expr.range(arena, most, rangeArg(range).id, rangeArg(range).axis)
  const main = replaceRanges(end, new Map([[range, [first]]]), new Map([[range, first]]))
  const own = toposort(end).filter((node) => node.op === "RANGE" && !between.has(node))
  const left = fixedSize(range)! - most
  const parts = new Map<UOp, ReadonlyArray<UOp>>()
  const values = new Map<UOp, UOp>()
  for (const loop of own) {
    const axis = rangeArg(loop).axis === "GLOBAL" ? "LOOP" : rangeArg(loop).axis
    const made = Expr.range(arena, loop === range ? left : fixedSize(loop) ?? loop.src[0]!, next++, axis)
    const isOne = loop === range && left === 1
    parts.set(loop, isOne ? [] : [made])
    values.set(loop, loop !== range ? made : isOne ? Expr.int(arena, most) : Expr.add(made, most))
  }
  const rest = replaceRanges(end, parts, values)
  return kernel.with([...kernel.src.slice(0, -1), rest, main])
}
