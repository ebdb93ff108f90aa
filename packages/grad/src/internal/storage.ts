/** Data flow through storage that is written and read again, and the same as values. */
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { type Arena, argOf, slotOf, type UOp } from "@tg/core-uop/UOp"
import { resultOf } from "@tg/core-uop/View"
import { storageOf } from "@tg/tensor/Program"
import { full, Tensor } from "@tg/tensor/Tensor"
import { fail } from "../GradError.ts"
import { standard } from "../Rules.ts"

/** A chain of shapes, slices and orderings over a BUFFER, a PARAM, or one of them AFTER effects. */
export interface View {
  /** The last one first. */
  readonly steps: ReadonlyArray<UOp>
  readonly of: UOp
}

/** The view of a node: its steps, and the storage under them. */
export const viewOf = (node: UOp): View => {
  const steps: Array<UOp> = []
  let of = node
  while (["RESHAPE", "PERMUTE", "SHRINK", "FLIP"].includes(of.op)) {
    steps.push(of)
    of = of.src[0]!
  }
  return { steps, of }
}

/** The same view of another value. */
export const look = ({ steps }: View, x: Tensor): Tensor =>
  steps.reduceRight(
    (seen, { arg, op, src }) => new Tensor(x.arena.make(op, seen.dtype, [seen.node, ...src.slice(1)], arg)),
    x
  )

/** Scatters a value to the elements of a view, with zeros elsewhere: the transpose of `look`. */
export const place = ({ steps }: View, x: Tensor): Tensor =>
  steps.reduce((placed, step) => {
    const rule = standard.get(step.op)
    return typeof rule === "function" ? rule(step, placed)[0]! : placed
  }, x)

/** Whether the view covers every element. */
const isWhole = ({ steps }: View): boolean => steps.every(({ op }) => op !== "SHRINK")

/** The mask of the view's elements; undefined if it covers all. */
export const placesOf = (view: View, arena: Arena): Tensor | undefined =>
  isWhole(view)
    ? undefined
    : place(view, full(arena, Shape.of(view.steps[0]!), 1, DType.u32)).ne(0)

/** The storage of this scope that an effect writes. */
export const writtenBy = (effect: UOp): ReadonlyArray<UOp> => {
  switch (effect.op) {
    case "STORE":
      return [storageOf(effect.src[0]!)!]
    case "CUSTOM":
      return argOf(effect, "CUSTOM").writes.map((i) => storageOf(effect.src[i]!)!)
    case "GETTUPLE": {
      const call = effect.src[0]!
      return slotsWrittenBy(effect).flatMap((slot) => storageOf(call.src[1 + slot]!) ?? [])
    }
    default:
      return []
  }
}

/** The numbers of the arguments that an effect of a call (a GETTUPLE) writes. */
export const slotsWrittenBy = (effect: UOp): ReadonlyArray<number> =>
  writtenBy(resultOf(effect).value).filter(({ op }) => op === "PARAM").map(slotOf)

/** The meaning of an AFTER: a view of storage before some effects, and the stores since. */
export interface Written {
  readonly view: View
  readonly before: UOp
  readonly stores: ReadonlyArray<{ readonly view: View; readonly value: UOp }>
  /** The effect of a call that writes it, and as which argument; the only writer then. */
  readonly call: { readonly effect: UOp; readonly slot: number } | undefined
}

const severalWriters = (found: string): never =>
  fail(
    "AFTER",
    "storage that was written in one order",
    found,
    "order the writes: assign into `after(buffer, [earlier])`"
  )

/** The writes to the storage of an AFTER node. */
export const writtenOf = (node: UOp): Written => {
  const view = viewOf(node.src[0]!)
  const storage = storageOf(view.of)!
  const effects = node.src.slice(1).filter((effect) => writtenBy(effect).includes(storage))
  const stores = effects.filter(({ op }) => op === "STORE")
    .map(({ src }) => ({ view: viewOf(src[0]!), value: src[1]! }))
  const [effect] = effects.filter(({ op }) => op !== "STORE")
  if (effect !== undefined) {
    if (effects.length > 1) severalWriters("a call among several writers")
    const call = effect.src[0]!
    const slot = slotsWrittenBy(effect).find((slot) => storageOf(call.src[1 + slot]!) === storage)!
    return { view, before: view.of, stores, call: { effect, slot } }
  }
  const versions = new Set([view.of, ...stores.map(({ view: { of } }) => of)])
  const later = [...versions].filter(({ op }) => op === "AFTER")
  if (later.length > 1) severalWriters("writes after different ones")
  return { view, before: later[0] ?? view.of, stores, call: undefined }
}

/** The contents of storage after stores, as a value. Stored values are materialised, as they were. */
export const overlay = (
  before: Tensor,
  stores: ReadonlyArray<{ readonly view: View; readonly value: Tensor }>
): Tensor =>
  stores.reduce((contents, { value, view }) => {
    const places = placesOf(view, contents.arena)
    const placed = place(view, value.contiguous())
    return places === undefined ? placed : places.where(placed, contents)
  }, before)
