import * as Bounds from "@tg/core-uop/Bounds"
import { type Axis, rangeArg, toposort, type UOp } from "@tg/core-uop/UOp"

/** One loop of a kernel. */
export interface Loop {
  readonly node: UOp
  readonly id: number
  readonly axis: Axis
  /** Iterations; for a symbolic size, the most it can be. */
  readonly size: number
  readonly isSymbolic: boolean
}

const toLoop = (node: UOp): Loop => ({
  node,
  id: rangeArg(node).id,
  axis: rangeArg(node).axis,
  size: Bounds.of(node.src[0]!).max,
  isSymbolic: node.src[0]!.op !== "CONST"
})

/** The loops over outputs, outermost first. */
export const outputs = (kernel: UOp): ReadonlyArray<Loop> => kernel.src.flatMap((end) => end.src.slice(1).map(toLoop))

/** The reductions of a kernel, inner ones first. */
export const reductions = (kernel: UOp): ReadonlyArray<UOp> => toposort(kernel).filter((n) => n.op === "REDUCE")

/** The loops of one reduction, outermost first. */
export const loopsOf = (reduction: UOp): ReadonlyArray<Loop> => reduction.src.slice(1).map(toLoop)

/** Every loop of the kernel: outputs, then reductions. */
export const all = (kernel: UOp): ReadonlyArray<Loop> => [...outputs(kernel), ...reductions(kernel).flatMap(loopsOf)]
