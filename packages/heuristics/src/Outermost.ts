/** Reductions that are inside of no other. */
import type { UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"

/** Whether a reduction runs once per thread and not once per iteration of another. */
export const isOutermost = (kernel: UOp, reduction: UOp): boolean =>
  !Loops.reductions(kernel).some((outer) => Loops.isInside(reduction, outer))

/** The reductions of a kernel, or of a part of one, that are inside of no other. */
export const outermost = (kernel: UOp): ReadonlyArray<UOp> =>
  Loops.reductions(kernel).filter((reduction) => isOutermost(kernel, reduction))
