import * as Bounds from "@tg/core-uop/Bounds"
import { type Axis, openRanges, rangeArg, toposort, type UOp } from "@tg/core-uop/UOp"
import { endOf, fixedSize } from "@tg/core-uop/View"

/** One loop of a kernel. */
export interface Loop {
  readonly node: UOp
  readonly id: number
  readonly axis: Axis
  /** Trip count; the upper bound of a symbolic one. */
  readonly size: number
  readonly isSymbolic: boolean
}

/** A RANGE as a loop. */
export const toLoop = (node: UOp): Loop => ({
  node,
  id: rangeArg(node).id,
  axis: rangeArg(node).axis,
  size: Bounds.of(node.src[0]!).max,
  isSymbolic: fixedSize(node) === undefined
})

const unique = (loops: ReadonlyArray<Loop>): ReadonlyArray<Loop> => [...new Map(loops.map((l) => [l.node, l])).values()]

/** The loops of one END, outermost first: over outputs, or over the elements that it stages in workgroup memory. */
export const ofEnd = (end: UOp): ReadonlyArray<Loop> => endOf(end).loops.map(toLoop)

/** The loops over outputs and over staged values, in the order of the ENDs, outermost first. */
export const outputs = (kernel: UOp): ReadonlyArray<Loop> => unique(kernel.src.flatMap(ofEnd))

/** The reductions of a kernel, inner ones first. */
export const reductions = (kernel: UOp): ReadonlyArray<UOp> =>
  kernel.cache.reductions ??= toposort(kernel).filter((n) => n.op === "REDUCE")

declare module "@tg/core-uop/UOp" {
  interface Cache {
    reductions?: ReadonlyArray<UOp>
  }
}

/** The loops of one reduction, outermost first. */
export const loopsOf = (reduction: UOp): ReadonlyArray<Loop> => reduction.src.slice(1).map(toLoop)

/** Whether a reduction is evaluated again in every iteration of another one: it depends on that one's loops. */
export const isInside = (inner: UOp, outer: UOp): boolean => {
  if (inner === outer) return false
  const open = openRanges(inner)
  return outer.src.slice(1).some((range) => open.has(range))
}

/** Every loop of the kernel, once: outputs, then reductions. */
export const all = (kernel: UOp): ReadonlyArray<Loop> => {
  const nodes = new Set([
    ...kernel.src.flatMap((end) => end.src.slice(1)),
    ...reductions(kernel).flatMap((r) => r.src.slice(1))
  ])
  return [...nodes].map(toLoop)
}

const product = (loops: ReadonlyArray<Loop>, axis: Axis): number =>
  loops.filter((l) => l.axis === axis).reduce((n, l) => n * l.size, 1)

/** Threads among which one reduction is split. */
export const groupOf = (reduction: UOp): number => product(loopsOf(reduction), "GROUP")

/**
 * Threads of a workgroup: the most that an END has work for, rounded up to whole groups, as devectorize does (all threads of a group
 * take part in its exchange).
 */
export const threads = (kernel: UOp): number => {
  const ends = kernel.src.map((end) => {
    const group = Math.max(1, ...reductions(end).map(groupOf))
    return { group, threads: group * product(ofEnd(end), "LOCAL") }
  })
  const group = Math.max(...ends.map((end) => end.group))
  return group * Math.ceil(Math.max(...ends.map((end) => end.threads)) / group)
}

/** Copies of the body after unrolling, in the END with most: UPCAST times the UNROLL of a reduction and of those inside of it. */
export const copies = (kernel: UOp): number =>
  Math.max(...kernel.src.map((end) => {
    const nested = reductions(end).map((r) =>
      product(unique(reductions(r).filter((n) => n === r || isInside(n, r)).flatMap(loopsOf)), "UNROLL")
    )
    return product(ofEnd(end), "UPCAST") * Math.max(1, ...nested)
  }))
