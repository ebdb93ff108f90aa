/** Dynamic quantisation of activations to 8 bits in blocks of 32, and their products with quantised weights (DOT4I8). */
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import type { UOp } from "@tg/core-uop/UOp"
import { iota, type Tensor } from "./Tensor.ts"
import { fail } from "./TensorError.ts"

/** Values of a block, which share a scale. */
export const blockValues = 32

// The layout of a block's record, in words: quants, scale, sum of the quants, sums of its halves.
const quantWords = 8
const scaleAt = 8
const sumAt = 9
const halvesAt = 10
/** Words of a block's record. */
export const recordWords = 12

/** 1.5 * 2^23: a float below 2^22 added to it leaves the nearest integer in the low bits, ties to even. */
const rounder = 12582912
const rounderBits = 0x4b400000

/** Smaller scales count as zero: their reciprocals overflow, and devices may flush subnormal numbers. */
const leastScale = 2 ** -120

/** Quants, the integers nearest to `x / scale`, `u32 [.., K / 32, 2, 4, 4]`, and the scale, `f32 [.., K / 32, 1, 1, 1]`. */
const round = (x: Tensor): { readonly quants: Tensor; readonly scale: Tensor } => {
  const k = x.rank === 0 ? 0 : x.dim(-1)
  if (!DType.isFloat(x.dtype) || typeof k !== "number" || k % blockValues !== 0) {
    return fail("quantise", "f32 [.., a multiple of 32]", `${DType.print(x.dtype)} ${Shape.print(x.shape)}`, "pad it")
  }
  const values = x.reshape([...x.shape.slice(0, -1), k / blockValues, 2, 4, 4])
  const magnitude = values.abs()
  const finite = magnitude.lt(Infinity).where(magnitude, Infinity)
  const scale = finite.max({ axis: [-3, -2, -1], keepDims: true }).mul(1 / 127)
  const inverse = scale.gt(leastScale).where(scale.reciprocal(), 0)
  return { quants: values.mul(inverse).add(rounder).bitcast(DType.u32).sub(rounderBits), scale }
}

/** 0 .. n - 1 followed by `trailing` axes of size 1. */
const count = ({ arena }: Tensor, n: number, trailing: number): Tensor =>
  iota(arena, n).cast(DType.u32).reshape([n, ...Array.from({ length: trailing }, () => 1)])

/** Each value's low byte, shifted to its place in its word. */
const byteOf = (quants: Tensor): Tensor => quants.and(255).shl(count(quants, 4, 1).mul(8))

/**
 * Float `[.., K]` to `u32 [.., K / 32, 12]`: for each block of 32 values the quants, 4 to a word (byte b of word 4h + w
 * is value 16h + 4b + w), the scale (the bits of an f32: the largest magnitude / 127), the sum of the quants, and the
 * sums of its two halves. A block with a value that is not finite has an infinite scale and quants without meaning; no product with
 * it is finite. Records that are read more than once are worth a store: otherwise each reader quantises again.
 */
export const quantise = (x: Tensor): Tensor => {
  const rounded = round(x)
  const quants = rounded.quants.unsqueeze(-4)
  // one reduction over the block for all words: each selects a value's byte, the whole value, or nothing
  const half = count(x, 2, 2)
  const at = count(x, recordWords, 3)
  const byte = half.mul(4).add(count(x, 4, 0)).eq(at).where(byteOf(quants), 0)
  const whole = at.eq(sumAt).or(at.eq(half.add(halvesAt))).where(quants, 0)
  const words = at.lt(quantWords).where(byte, whole).sum({ axis: [-3, -2, -1] })
  const bits = rounded.scale.reshape([...words.shape.slice(0, -1), 1]).bitcast(DType.u32)
  const records = at.reshape([recordWords]).eq(scaleAt).where(bits, words)
  roundedOf.set(records.node, x)
  return records
}

/** What was rounded, by its records or quants. Nodes are values themselves: equal ones are one. */
const roundedOf = new WeakMap<UOp, Tensor>()

/** The floats that these are the records or the quants of, if `quantise` or `blocks` made them. */
export const sourceOf = (rounded: Tensor): Tensor | undefined => roundedOf.get(rounded.node)

/** Quantised values as a product reads them. */
export interface Blocks {
  /** `u32 [.., K / 32, 2, 4]`: byte b of word (h, w) is value 16h + 4b + w of its block. */
  readonly quants: Tensor
  /** `f32 [.., K / 32, 1]`. */
  readonly scale: Tensor
  /** The sum of the quants of each block, or of each half of it: `i32 [.., K / 32, parts]`. */
  readonly sums: (parts: 1 | 2) => Tensor
}

/** The parts of `quantise` without a record: for fusion into the reader. */
export const blocks = (x: Tensor): Blocks => {
  const { quants, scale } = round(x)
  const lead = quants.shape.slice(0, -3)
  const bytes = byteOf(quants).sum(-2)
  roundedOf.set(bytes.node, x)
  return {
    quants: bytes,
    scale: scale.reshape([...lead, 1]),
    sums: (parts) => quants.bitcast(DType.i32).reshape([...lead, parts, blockValues / parts]).sum(-1)
  }
}

/** The parts of records. */
const ofRecords = (records: Tensor): Blocks => ({
  quants: records.slice(-1, 0, quantWords).reshape([...records.shape.slice(0, -1), 2, 4]),
  scale: records.slice(-1, scaleAt, 1).bitcast(DType.f32),
  sums: (parts) => records.slice(-1, parts === 2 ? halvesAt : sumAt, parts).bitcast(DType.i32)
})

/** Weights `[.., rows, K]` as integers of a byte with scales: `scale (q - zero) - minimum`. */
export interface Rows {
  /** `u32 [.., rows, K / 32, 2, 4]`: byte b of word (h, w) is q of value 16h + 4b + w of its block. */
  readonly words: Tensor
  /** `f32 [.., rows, K / 32, 1]`, or `[.., 2]` where each half of a block has its own. */
  readonly scale: Tensor
  readonly zero: number
  /** Like `scale`. */
  readonly minimum: Tensor | undefined
}

/** The same rows under another view: `view` gets each tensor and how many of its last axes are a row. */
export const mapRows = (rows: Rows, view: (x: Tensor, rowRank: number) => Tensor): Rows => ({
  words: view(rows.words, 3),
  scale: view(rows.scale, 2),
  zero: rows.zero,
  minimum: rows.minimum === undefined ? undefined : view(rows.minimum, 2)
})

/** Rows by their values. */
const known = new WeakMap<UOp, Rows>()

/**
 * The same rows as floats, `[.., rows, K / 32, 2, 4, 4]`: who multiplies with them may round what he multiplies to bytes, as `rowsOf` gives
 * the bytes back.
 */
export const values = (rows: Rows): Tensor => {
  const { minimum, scale, words, zero } = rows
  const bits = count(words, 4, 1).mul(8)
  const signed = words.unsqueeze(-2).shl(bits.neg().add(24)).bitcast(DType.i32).shr(24).cast(DType.f32)
  const each = (x: Tensor): Tensor => x.unsqueeze(-1).unsqueeze(-1)
  const scaled = (zero === 0 ? signed : signed.sub(zero)).mul(each(scale))
  const all = minimum === undefined ? scaled : scaled.sub(each(minimum))
  known.set(all.node, rows)
  return all
}

/** Axes of a row of `values`. */
export const rowRank = 4

/** The rows that some values were made of, if they were. */
export const rowsOf = (values: Tensor): Rows | undefined => known.get(values.node)

/** A product of bytes, by what it was made of. */
export interface Product {
  readonly x: Tensor | Blocks
  readonly rows: Rows
  /** The product of floats in its place, where costs may choose how `x` is read; where they may not, there is none. */
  readonly floats?: (() => Tensor) | undefined
}

const products = new WeakMap<UOp, Product>()

/** What a value was made of, if it is the result of `contract`. */
export const productOf = (y: Tensor): Product | undefined => products.get(y.node)

/** Whether a node is a product whose operand costs may read in another form. */
export const hasForms = (node: UOp): boolean => products.get(node)?.floats !== undefined

/**
 * `y[.., n] = sum_k w[n, k] x[.., k]` for quantised `x`, records or the parts of them, whose leading axes broadcast with
 * those of the weight. A block's dot product is an exact integer, scaled once. `floats` is what may stand in its place.
 */
export const contract = (x: Tensor | Blocks, rows: Rows, floats?: Product["floats"]): Tensor => {
  const y = product({ x, rows })
  products.set(y.node, { x, rows, floats })
  return y
}

const product = ({ rows: { minimum, scale, words, zero }, x }: Product): Tensor => {
  const outer = ("quants" in x ? x.scale : x).shape.slice(0, -1)
  const lead = [...outer.slice(0, -1), 1]
  const rows = words.shape.slice(0, -3)
  const missing = Math.max(0, rows.length - lead.length)
  const all = [...rows.slice(0, missing), ...lead.map((d, i) => d === 1 ? rows[i + rows.length - lead.length] ?? 1 : d)]
  const row = [...all, outer.at(-1)!]
  // the record is broadcast as a whole, so that placement stores the record and not its parts
  const spread = (part: Tensor): Tensor => {
    const inner = part.shape.slice(outer.length)
    return part.reshape([...lead, outer.at(-1)!, ...inner]).expand([...row, ...inner])
  }
  const read: Blocks = "quants" in x
    ? { quants: spread(x.quants), scale: spread(x.scale), sums: (parts) => spread(x.sums(parts)) }
    : ofRecords(spread(x))
  const dots = read.quants.dot4I8(words)
  const parts = scale.dim(-1) === 2 ? 2 : 1
  const whole = parts === 2 ? dots.sum(-1) : dots.sum({ axis: [-2, -1] }).unsqueeze(-1)
  const centred = zero === 0 ? whole : whole.sub(read.sums(parts).mul(zero))
  const scaled = centred.cast(DType.f32).mul(scale)
  const shifted = minimum === undefined ? scaled : scaled.sub(read.sums(parts).cast(DType.f32).mul(minimum))
  return shifted.mul(read.scale).sum({ axis: [-2, -1] })
}
