/** Sums of rows by number, and fixed point, whose sums are the same in every order. */
import * as DType from "@tg/core-uop/DType"
import type { ScatterArg } from "@tg/core-uop/UOp"
import * as Shape from "@tg/core-uop/Shape"
import { Tensor } from "./Tensor.ts"
import { fail } from "./TensorError.ts"

/** What is added, and where. */
export interface Rows {
  /** The number of the row that each value is added to. One that there is not adds nothing. */
  readonly index: Tensor
  readonly value: Tensor
  /**
   * `rows`: values of one row are added in the order of the index, so that floats are the same in every run. `any`: the device may add them in
   * any order, floats too. Sums of integers do not depend on it. `rows` by default.
   */
  readonly order?: ScatterArg["order"]
}

/** `initial [rows, ..]`, and for each i of `index [n]` the row `value[i]` of `value [n, ..]` added to its row `index[i]`. */
export const scatterAdd = (initial: Tensor, { index, order = "rows", value }: Rows): Tensor => {
  if (initial.rank === 0 || !DType.isStorable(initial.dtype)) {
    const found = `${DType.print(initial.dtype)} ${Shape.print(initial.shape)}`
    return fail("scatterAdd", "rows of i32, u32 or f32", found, "reshape or cast it")
  }
  const isInteger = index.dtype === DType.i32 || index.dtype === DType.u32
  const [count, ...own] = value.shape
  if (!isInteger || index.rank !== 1 || count === undefined || index.dim(0) !== count) {
    const found = `${DType.print(index.dtype)} ${Shape.print(index.shape)}`
    const asked = `an i32 or u32 index for each of the rows of ${Shape.print(value.shape)}`
    return fail("scatterAdd", asked, found, "cast or reshape it")
  }
  const row = initial.shape.slice(1)
  if (initial.dtype !== value.dtype || !Shape.equal(row, own)) {
    const asked = `rows of ${DType.print(initial.dtype)} ${Shape.print(row)}`
    return fail("scatterAdd", asked, `${DType.print(value.dtype)} ${Shape.print(own)}`, "cast or reshape the values")
  }
  const src = [initial.node, index.node, value.node]
  const exact = DType.isInteger(initial.dtype) ? "any" : order
  return new Tensor(initial.arena.make("SCATTER_ADD", initial.dtype, src, { order: exact }))
}

/** Fixed point with `bits` fractional bits: sums are associative, so the same in every order. Overflows from 2^(31 - bits) on. */
export const toFixed = (x: Tensor, bits: number): Tensor => {
  const scaled = x.mul(2 ** bits)
  return scaled.lt(0).where(scaled.sub(0.5), scaled.add(0.5)).cast(DType.i32)
}

/** The floats of `toFixed`. */
export const fromFixed = (x: Tensor, bits: number): Tensor => x.cast(DType.f32).mul(2 ** -bits)
