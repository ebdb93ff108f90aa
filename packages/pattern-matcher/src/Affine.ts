import * as Expr from "@tg/core-uop/Expr"
import { openRanges, substitute, type UOp } from "@tg/core-uop/UOp"
import * as Symbolic from "./Symbolic.ts"

/** The stride of an index along a loop, from its first iteration to the second; `undefined` if it is not constant. */
export const stepOf = (at: UOp, range: UOp): number | undefined => {
  if (!openRanges(at).has(range)) return 0
  const value = (i: number): UOp => Symbolic.simplify(substitute(at, new Map([[range, Expr.int(at.arena, i)]])))
  return Symbolic.difference(value(1), value(0))
}
