import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { ReduceOp } from "@tg/core-uop/Op"
import { argOf, groupArg, rebuild, reduceArg, type UOp } from "@tg/core-uop/UOp"

/**
 * Reductions of vectors without the lanes in which nothing but the neutral element is reduced: a row that is padded to vectors has them, as the sum of weights behind a mix of values. They
 * would take a register each, an addition in each iteration, and exchanges between threads. Spec `expanded`, before and after.
 */
export const withoutIdleLanes = (kernel: UOp): UOp =>
  rebuild(kernel, (node, src) => {
    const made = src === node.src ? node : node.with(src)
    const [value] = src
    if (made.op === "LANE" && value!.op === "STACK") return value!.src[argOf(made, "LANE")]!
    if (made.op === "GROUP_REDUCE" && value === neutralOf(groupArg(made).op, value!)) return value
    return made.op === "REDUCE" && value!.dtype.lanes > 1 && reduceArg(made).tile === undefined ? split(made) : made
  })

const neutralOf = (op: ReduceOp, value: UOp): UOp => Expr.identity(value.arena, op, DType.scalarOf(value.dtype))

/** A reduction of vectors by lanes, if some are idle. */
const split = (reduction: UOp): UOp => {
  const [value, ...ranges] = reduction.src as [UOp, ...Array<UOp>]
  const { op } = reduceArg(reduction)
  const neutral = neutralOf(op, value)
  const lanes = Array.from({ length: value.dtype.lanes }, (_, i) => laneOf(value, i, { op, neutral }))
  if (!lanes.includes(neutral)) return reduction
  const { arena, arg, dtype } = reduction
  return arena.make(
    "STACK",
    dtype,
    lanes.map((lane) => lane === neutral ? neutral : arena.make("REDUCE", lane.dtype, [lane, ...ranges], arg))
  )
}

/** What is reduced in a lane: the neutral element, where all that is combined there is. */
const laneOf = (value: UOp, lane: number, reduced: { readonly op: ReduceOp; readonly neutral: UOp }): UOp => {
  if (value.op !== reduced.op) return Expr.lane(value, lane)
  const [a, b] = value.src.map((source) => laneOf(source, lane, reduced)) as [UOp, UOp]
  return a === reduced.neutral && b === reduced.neutral ? reduced.neutral : Expr.alu(reduced.op, a, b)
}
