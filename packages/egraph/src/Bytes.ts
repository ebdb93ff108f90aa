/** Products of bytes, as they are written: the value by blocks of 32 along the rows of the weights. */
import * as Int8 from "@tg/tensor/Int8"
import type { Tensor } from "@tg/tensor/Tensor"
import * as Contraction from "./Contraction.ts"
import { stored } from "./Layout.ts"

/** `sum_k x[.., k] w[n, k]` with `x` rounded to bytes; `weights` are what `Int8.values` made of rows. */
export const product = (c: Contraction.Contraction, x: Tensor, weights: Tensor): Tensor => {
  const rows = Int8.rowsOf(weights)
  if (rows === undefined) {
    throw new Error("a product of bytes has weights that are no bytes; rules make them of rows alone")
  }
  const [value, access] = [c.operands[0]!, c.operands[1]!]
  const lead = access.slice(0, -Int8.rowRank)
  const row = access.slice(-Int8.rowRank).flat()
  const own = value.flat()
  const shared = lead.slice(0, -1).map(([i]) => i !== undefined && own.includes(i) ? i : undefined)
  const free = own.filter((i) => !row.includes(i) && !shared.includes(i))
  const sizes = (some: ReadonlyArray<Contraction.Index | undefined>) =>
    some.map((i) => i === undefined ? 1 : c.sizes[i]!)
  const order = [...free, ...shared.filter((i) => i !== undefined), ...row]
  const operand = x.reshape(sizes(own)).permute(order.map((i) => own.indexOf(i)))
    .reshape([...sizes([...free, ...shared]), sizes(row).reduce<number>((n, d) => n * Number(d), 1)])
  const made = Int8.contract(stored(Int8.quantise(operand).label("int8")), rows)
  const result = [...free, ...lead.flat()]
  const output = c.output.flat()
  return made.reshape(sizes(result)).permute(output.map((i) => result.indexOf(i)))
    .reshape(Contraction.shapeOf(c.sizes, c.output))
}
