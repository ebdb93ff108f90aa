/**
 * Indices on a device that does not clamp them: one whose bounds lie inside the buffer stands as it is, every other one is clamped to the
 * buffer. So no access leaves its buffer, as with WebGPU's robust buffer access, which clamps them all.
 */
import { argOf, type Range, type UOp } from "@tg/core-uop/UOp"
import { fixedSize } from "@tg/core-uop/View"
import * as Interval from "@tg/pattern-matcher/Interval"
import { atom, type Text } from "./text.ts"
import type { Writer } from "./writer.ts"

/** Scalars of a buffer; `undefined` where they are known only at launch. */
const lengthOf = (buffer: UOp): number | undefined =>
  buffer.op === "LOCAL" ? argOf(buffer, "LOCAL").length : fixedSize(buffer)

/** Whether all that is touched lies in the buffer where these conditions hold, by interval arithmetic. Most of it does so without them. */
const isProved = ({ at, buffer, lanes }: Touched, conditions: ReadonlyArray<UOp>): boolean => {
  const length = lengthOf(buffer)
  const isInside = ({ max, min }: Range): boolean => length !== undefined && min >= 0 && max + lanes <= length
  return isInside(Interval.of(at)) ||
    conditions.length > 0 && isInside(Interval.of(at, Interval.factsOf(conditions)))
}

/** What an access touches: `lanes` scalars of a buffer from `at` on. */
export interface Touched {
  readonly buffer: UOp
  /** The buffer's name in the text. */
  readonly name: string
  readonly at: UOp
  readonly lanes: number
  /** What it is touched under alone: a store's gate, not that of a load. */
  readonly gate?: UOp | undefined
}

/** The index of the first of `count` elements of `width` scalars each, which lie in the buffer. */
export const within = (
  writer: Writer,
  touched: Touched,
  { count, index, width }: { readonly index: Text; readonly width: number; readonly count: number }
): Text => {
  if (!writer.options.unclamped) return index
  const { buffer, gate, name } = touched
  if (isProved(touched, [...writer.conditions(), ...gate === undefined ? [] : [gate]])) return index
  const length = lengthOf(buffer)
  // the declared array of workgroup memory is as long as all of its scalars need, a binding may end within an element
  const elements = length === undefined
    ? undefined
    : buffer.op === "LOCAL"
    ? Math.ceil(length / width)
    : Math.floor(length / width)
  const last = elements === undefined
    ? `max(arrayLength(&${name}), ${count}u) - ${count}u`
    : `${Math.max(0, elements - count)}u`
  return atom(`min(u32(${index.code}), ${last})`)
}
