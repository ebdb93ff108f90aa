/** The part of an argument that each workgroup of a kernel reads. */
import * as Bounds from "@tg/core-uop/Bounds"
import type { Window } from "@tg/core-uop/Phases"
import { slotOf, specialName, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import * as Sum from "@tg/pattern-matcher/Sum"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { isPlain } from "./issue.ts"

const known = new WeakMap<UOp, Map<UOp, Window | undefined>>()

/** The words that a workgroup of a linear kernel reads of an argument; none, where no such bounds are seen. */
export const windowOf = (linear: UOp, param: UOp): Window | undefined => {
  const found = known.get(linear) ?? new Map<UOp, Window | undefined>()
  known.set(linear, found)
  if (!found.has(param)) found.set(param, findWindow(linear, param))
  return found.get(param)
}

const findWindow = (linear: UOp, param: UOp): Window | undefined => {
  const loads = linear.src.filter((node) => node.op === "LOAD" && isOf(accessOf(node).buffer, param))
  const places = loads.map((load) => {
    const { at } = accessOf(load)
    const sum = Symbolic.sum(at)
    const outer = Sum.filter(sum, (_, term) => isOfWorkgroup(term))
    return { at, outer, inner: Sum.bounds(Sum.sub(sum, outer)), lanes: load.dtype.lanes }
  })
  const [first] = places
  if (first === undefined || !places.every(({ at, outer }) => isPlain(at) && Sum.equals(outer, first.outer))) {
    return undefined
  }
  const least = Math.min(...places.map(({ inner }) => inner.min))
  const end = Math.max(...places.map(({ inner, lanes }) => inner.max + lanes))
  const base = Symbolic.simplify(Sum.toNode(Sum.add(first.outer, Sum.constant(least)), linear.arena))
  return Bounds.of(base).min < 0 ? undefined : { base, words: end - least }
}

/** An argument may be named as elements of several dtypes. */
const isOf = (buffer: UOp, param: UOp): boolean => buffer.op === "PARAM" && slotOf(buffer) === slotOf(param)

/** Whether a value is the same for all threads of a workgroup, in all turns of its loops. */
const isOfWorkgroup = (term: UOp): boolean =>
  toposort(term).every((node) =>
    node.op !== "RANGE" && (node.op !== "SPECIAL" || !specialName(node).startsWith("lidx"))
  )
