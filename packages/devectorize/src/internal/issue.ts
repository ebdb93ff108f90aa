/** Which loads may be issued earlier than where their values are used, and which of them are worth it. */
import * as Bounds from "@tg/core-uop/Bounds"
import { elementwise } from "@tg/core-uop/Op"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"

/** What a place follows from without a load. */
export const leaves: ReadonlySet<string> = new Set(["CONST", "VAR", "SPECIAL", "RANGE"])

/** Whether a value follows from the indices of the hardware and of loops alone. */
export const isPlain = (value: UOp): boolean => toposort(value).every(({ op }) => elementwise.has(op) || leaves.has(op))

/** Elements of what a load reads from, at most. */
export const lengthOf = (load: UOp): number => Bounds.of(accessOf(load).buffer.src[0]!).max

/** As many of these as are so many words of a thread: the first ones, but those that would be too many. */
export const withinWords = <A>(all: ReadonlyArray<A>, words: number, loadOf: (one: A) => UOp): ReadonlyArray<A> => {
  let left = words
  return all.filter((one) => {
    const { lanes } = loadOf(one).dtype
    if (lanes > left) return false
    left -= lanes
    return true
  })
}
