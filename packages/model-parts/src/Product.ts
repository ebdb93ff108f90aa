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
 * How products with quantised weights read their other operand: as it is, or rounded to 8 bits per 32 values. `int8`
 * launches nothing to round what only a few rows read: that costs more than it saves. `int8-all` does, where launches cost
 * next to nothing.
 */
export type Activations = "float" | "int8" | "int8-all"

/** How values of a step are computed and stored. */
export interface Manner extends Laid {
  readonly activations: Activations
  /** What costs are counted for; a usual device if it is not said. */
  readonly profile?: DeviceProfile | undefined
}

/** The operand of products: as it is and, where products may use it, quantised. */
export interface Operand {
  readonly values: Tensor
  readonly int8: Tensor | Int8.Blocks | undefined
}

/** One whose quants are stored, for all products. */
export interface Activation extends Operand {
  readonly int8: Tensor | undefined
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
export const hasBlocks = (x: Tensor): boolean => Number(x.dim(-1)) % Int8.blockValues === 0

/** `x [.., K]` as products of this policy read it. All of them share what is quantised, which is stored. */
export const activation = (
  x: Tensor,
  activations: Activations,
  laid: (records: Tensor) => Tensor = once
): Activation => ({
  values: x,
  int8: activations !== "float" && hasBlocks(x) ? laid(Int8.quantise(x).label("int8")) : undefined
})

/** The same of one value per token, in its order. */
export const ofTokens = (x: Tensor, manner: Manner): Activation =>
  activation(x, manner.activations, (records) => stored(manner, records))

/** What a product computed, as the operand of another one. */
export const computed = (x: Tensor, manner: Manner): Activation => ofTokens(shared(manner, x), manner)

/** `x` rounded by whoever multiplies it, instead of by a launch that takes longer than it saves. */
export const inPlace = (x: Tensor): Operand => {
  const { quants, scale, sums } = Int8.blocks(x)
  return {
    values: x,
    int8: { quants: quants.label("int8"), scale: scale.label("int8"), sums: (parts) => sums(parts).label("int8") }
  }
}

const float = (values: Tensor): Activation => ({ values, int8: undefined })

/** The operand of products with few rows. */
export const ofFewRows = (x: Tensor, manner: Manner): Activation =>
  manner.activations === "int8-all" ? ofTokens(x, manner) : float(x)

/** One activation for several experts: `[T, K]` to `[T, 1, K]`. */
export const forExperts = ({ int8, values }: Activation): Activation => ({
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

/** Whether the product is one of bytes. */
const isInt8 = <A extends Operand>(x: A, layout: Layout.Layout): x is A & { readonly int8: NonNullable<A["int8"]> } =>
  x.int8 !== undefined && Layout.isInt8(layout)

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

/** `x` times a weight whose rows are outputs, or times a part of it. */
export const product = (x: Operand, { layout, words }: Weight, { select, view }: Part = {}): Tensor => {
  if (isInt8(x, layout)) {
    const rows = Layout.decodeInt8(layout, words, select)
    return Int8.contract(x.int8, view === undefined ? rows : Int8.mapRows(rows, view))
  }
  const { rowRank, values } = Layout.decode(layout, words, select)
  return Nn.contract(x.values, view === undefined ? values : view(values, rowRank), rowRank)
}
