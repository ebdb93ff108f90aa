/**
 * Sums under a condition that their loops do not change: threads that do not meet it leave the loop out, instead of adding zeros.
 *
 * Values side by side in one record, as the mix of attention's piece and the sum beside it, are sums of which each is gated to its own columns, and every
 * thread computed all of them. The trip count of a guarded loop is `where(condition, n, 0)`, and loads inside of it need no gate.
 */
import * as Expr from "@tg/core-uop/Expr"
import { openRanges, rangeArg, rebuild, reduceArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"

/** The factors of a conjunction. */
const conjuncts = (condition: UOp): ReadonlyArray<UOp> =>
  condition.op === "AND" ? condition.src.flatMap(conjuncts) : [condition]

/** Conditions of the loads in a value. */
const conditionsOf = (value: UOp): ReadonlySet<UOp> =>
  new Set(
    toposort(value).flatMap((node) => {
      const gate = node.op === "LOAD" ? accessOf(node).gate : undefined
      return gate === undefined ? [] : conjuncts(gate)
    })
  )

const isZero = (node: UOp): boolean =>
  node.op === "STACK" ? node.src.every(isZero) : node.is("CONST") && Number(node.arg) === 0

/** A value where a condition does not hold: gated loads give zero. */
const without = (value: UOp, condition: UOp): UOp => {
  const no = Expr.constant(condition.arena, condition.dtype, false)
  return Symbolic.simplify(rebuild(value, (node, src) => {
    const made = src === node.src ? node : node.with(src)
    const gate = made.op === "LOAD" ? accessOf(made).gate : undefined
    return gate === undefined || !conjuncts(gate).includes(no)
      ? made
      : Expr.splat(Expr.constant(made.arena, made.dtype, 0), made.dtype.lanes)
  }, new Map([[condition, no]])))
}

/** A value whose loads in these loops are not gated by a condition. Others may be hoisted out of the loops, and stay as they are. */
const ungated = (value: UOp, condition: UOp, loops: ReadonlyArray<UOp>): UOp =>
  rebuild(value, (node, src) => {
    const made = src === node.src ? node : node.with(src)
    if (made.op !== "LOAD") return made
    const { at, buffer, element, gate } = accessOf(made)
    if (gate === undefined || !loops.some((loop) => openRanges(at).has(loop))) return made
    const left = conjuncts(gate).filter((part) => part !== condition)
    const gates = left.length === 0 ? [] : [left.reduce((a, b) => Expr.and(a, b))]
    return made.with([element.with([buffer, at, ...gates]), ...made.src.slice(1)])
  })

/** Guards the sums of a kernel (spec `expanded`). Sums under one condition over one loop stay over one loop. */
export const guard = (kernel: UOp): UOp => {
  const { arena } = kernel
  let fresh = 1 + toposort(kernel).reduce((most, node) => node.is("RANGE") ? Math.max(most, node.arg.id) : most, 0)
  const guarded = new Map<UOp, Map<UOp, UOp>>()
  const guardedLoop = (loop: UOp, condition: UOp): UOp => {
    const known = guarded.get(loop) ?? new Map<UOp, UOp>()
    guarded.set(loop, known)
    const made = known.get(condition) ??
      Expr.range(arena, Expr.where(condition, loop.src[0]!, Expr.int(arena, 0)), fresh++, rangeArg(loop).axis)
    known.set(condition, made)
    return made
  }
  return rebuild(kernel, (node, src) => {
    const made = src === node.src ? node : node.with(src)
    if (made.op !== "REDUCE" || reduceArg(made).op !== "ADD") return made
    const [value, ...loops] = made.src as [UOp, ...Array<UOp>]
    const [outer, ...inner] = loops
    // threads that leave a loop out would be missing where others exchange values in it
    if (outer === undefined || toposort(value).some(({ op }) => op === "GROUP_REDUCE")) return made
    const open = openRanges(made)
    const condition = [...conditionsOf(value)].find((each) =>
      [...openRanges(each)].every((range) => open.has(range)) && isZero(without(value, each))
    )
    if (condition === undefined) return made
    const loop = guardedLoop(outer, condition)
    return made.with([substitute(ungated(value, condition, loops), new Map([[outer, loop]])), loop, ...inner])
  })
}
