import * as Expr from "@tg/core-uop/Expr"
import { openRanges, substitute, type UOp } from "@tg/core-uop/UOp"
import * as Symbolic from "./Symbolic.ts"

/** The stride of an index along a loop, from its first iteration to the second; `undefined` if it is not constant. */
export const stepOf = (at: UOp, range: UOp): number | undefined => {
  if (!openRanges(at).has(range)) return 0
  const value = (i: number): UOp => Symbolic.simplify(substitute(at, new Map([[range, Expr.int(at.arena, i)]])))
  return Symbolic.difference(value(1), value(0))
}

/** Whether the indices are contiguous, `i, i+1, ...`, and aligned to their number. */
export const areNeighbours = (at: ReadonlyArray<UOp>): boolean =>
  at.every((x, i) => i === 0 || Symbolic.difference(x, at[0]!) === i) && Symbolic.divisor(at[0]!) % at.length === 0
