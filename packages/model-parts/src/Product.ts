/** Products with weights, and how they read their other operand: as floats, or rounded to bytes. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Layout from "@tg/gguf/Layout"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
import { type Laid, once, shared, stored } from "./Schedule.ts"

/** A weight with the buffer of its planes. */
export interface Weight {
  readonly layout: Layout.Layout
  readonly words: Tensor
}

/** The weights of a block, found by role: the name in the file without `blk.i.` and `.weight`. */
export type Lookup = (role: string) => Weight | undefined

/**
 * How products with quantised weights may read their other operand: as it is, or rounded to 8 bits per 32 values. Of `int8` each value is read as
 * takes least time (`Operands` of `@tg/egraph`); of `int8-all` all are rounded, once for all products, where launches cost next to nothing.
 */
export type Activations = "float" | "int8" | "int8-all"

/** How values of a step are computed and stored. */
export interface Manner extends Laid {
  readonly activations: Activations
  /** What costs are counted for; a usual device if it is not said. */
  readonly profile?: DeviceProfile | undefined
}

/** The operand of products: as it is and, where products may use it, quantised and stored for all of them. */
export interface Operand {
  readonly values: Tensor
  readonly int8: Tensor | undefined
  /** What products with it may read. */
  readonly activations: Activations
}

/** The weight of a role that a block cannot be without. */
export const need = (weights: Lookup, role: string): Weight => {
  const weight = weights(role)
  if (weight === undefined) throw new Error(`the block has no ${role}; the search for weights checks that it has`)
  return weight
}

/** A vector, or a small matrix, as it is. */
export const plain = ({ layout, words }: Weight): Tensor => Layout.dequantise(layout, words)

/** Whether the last axis can be rounded in blocks. */
const hasBlocks = (x: Tensor): boolean => Number(x.dim(-1)) % Int8.blockValues === 0

/** `x [.., K]` as products of this policy read it. All of them share what is quantised, which is stored. */
export const operand = (
  x: Tensor,
  activations: Activations,
  laid: (records: Tensor) => Tensor = once
): Operand => ({
  values: x,
  int8: activations !== "float" && hasBlocks(x) ? laid(Int8.quantise(x).label("int8")) : undefined,
  activations
})

/** The same of one value per token, in its order. */
export const ofTokens = (x: Tensor, manner: Manner): Operand =>
  operand(x, manner.activations, (records) => stored(manner, records))

/** What a product computed, as the operand of another one. */
export const computed = (x: Tensor, manner: Manner): Operand => ofTokens(shared(manner, x), manner)

/** One operand for several experts: `[T, K]` to `[T, 1, K]`. */
export const forExperts = ({ int8, values, ...x }: Operand): Operand => ({
  ...x,
  values: values.unsqueeze(1),
  int8: int8?.unsqueeze(1)
})

/** Which part of a weight to multiply with. */
export interface Part {
  /** The experts, by number. */
  readonly select?: Tensor | undefined
  /** Another view of the rows. It gets a tensor and how many of its last axes are a row. */
  readonly view?: ((x: Tensor, rowRank: number) => Tensor) | undefined
}

/**
 * A weight in an equation: its values, with the row on nested axes. Where all products read bytes, it is written so that whoever finds
 * another form of the equation may round what the weight is multiplied with.
 */
export const inEquation = (
  { activations }: Manner,
  { layout, words }: Weight,
  view: NonNullable<Part["view"]> = (x) => x
): Layout.SpreadRows => {
  if (activations === "int8-all" && Layout.isInt8(layout)) {
    return { values: Int8.values(Int8.mapRows(Layout.decodeInt8(layout, words), view)), rowRank: Int8.rowRank }
  }
  const { rowRank, values } = Layout.decode(layout, words)
  return { values: view(values, rowRank), rowRank }
}

/**
 * `x` times a weight whose rows are outputs, or times a part of it: of bytes, where the policy allows and the weight is one of small integers.
 * Who compiles it may take floats in their place, but where all are rounded.
 */
export const product = (x: Operand, { layout, words }: Weight, { select, view = (w) => w }: Part = {}): Tensor => {
  const floats = (): Tensor => {
    const { rowRank, values } = Layout.decode(layout, words, select)
    return Nn.contract(x.values, view(values, rowRank), rowRank)
  }
  if (x.int8 === undefined || !Layout.isInt8(layout)) return floats()
  const rows = Int8.mapRows(Layout.decodeInt8(layout, words, select), view)
  return Int8.contract(x.int8, rows, x.activations === "int8" ? floats : undefined)
}
