/** Activations of 8 bits, and their products with weights that are small integers: sums of products of bytes. */
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { iota, type Tensor } from "./Tensor.ts"
import * as Nn from "./Nn.ts"
import { fail } from "./TensorError.ts"

/** Neighbouring values that share a scale. */
export const blockValues = 32

// Words of a block: quants, then what a product needs to know of them.
const quantWords = 8
const scaleAt = 8
const sumAt = 9
const halvesAt = 10

/** 1.5 * 2^23: a float below 2^22 added to it leaves the nearest integer in the low bits, ties to even. */
const rounder = 12582912
const rounderBits = 0x4b400000

/** Scales below are zero: devices may flush subnormal numbers. */
const leastScale = 2 ** -120

/**
 * Float `[.., K]` to `u32 [.., K / 32, 12]`: for each block of 32 values the quants, 4 to a word (byte b of word 4h + w
 * is value 16h + 4b + w), the scale (the bits of an f32: the largest magnitude / 127), the sum of the quants, and the
 * sums of its two halves. A block with a value that is not finite has an infinite scale and no quants, so that no
 * product with it is finite.
 */
export const quantise = (x: Tensor): Tensor => {
  const k = x.rank === 0 ? 0 : x.dim(-1)
  if (!DType.isFloat(x.dtype) || typeof k !== "number" || k % blockValues !== 0) {
    return fail("quantise", "f32 [.., a multiple of 32]", `${DType.print(x.dtype)} ${Shape.print(x.shape)}`, "pad it")
  }
  const { arena } = x
  const blocks = [...x.shape.slice(0, -1), k / blockValues]
  const values = x.reshape([...blocks, 2, 4, 4])
  const magnitude = values.abs()
  const finite = magnitude.lt(Infinity).where(magnitude, Infinity)
  const scale = finite.max({ axis: [-3, -2, -1], keepDims: true }).mul(1 / 127)
  const shifted = values.mul(scale.gt(leastScale).where(scale.reciprocal(), 0)).add(rounder)
  const byte = iota(arena, 4).cast(DType.u32).mul(8).reshape([4, 1])
  const words = shifted.bitcast(DType.u32).and(255).shl(byte).sum(-2).reshape([...blocks, quantWords])
  const quants = shifted.bitcast(DType.i32).sub(rounderBits)
  const halves = quants.sum({ axis: [-2, -1] }).bitcast(DType.u32)
  const sum = quants.sum({ axis: [-3, -2, -1] }).bitcast(DType.u32).unsqueeze(-1)
  return Nn.cat([words, scale.reshape([...blocks, 1]).bitcast(DType.u32), sum, halves], -1)
}

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

/**
 * `y[.., n] = sum_k w[n, k] x[.., k]` for quantised `x`, whose leading axes broadcast with those of the weight. Sums of a
 * block are exact integers, scaled once.
 */
export const contract = (x: Tensor, { minimum, scale, words, zero }: Rows): Tensor => {
  const blocks = x.shape.slice(0, -1)
  const row = [...blocks.slice(0, -1), 1, blocks.at(-1)!]
  const part = (at: number, count: number): Tensor => x.slice(-1, at, count).reshape([...row, count])
  const dots = part(0, quantWords).reshape([...row, 2, 4]).dot4I8(words)
  const inHalves = scale.dim(-1) === 2
  const sums = inHalves ? part(halvesAt, 2) : part(sumAt, 1)
  const whole = inHalves ? dots.sum(-1) : dots.sum({ axis: [-2, -1] }).unsqueeze(-1)
  const centred = zero === 0 ? whole : whole.sub(sums.bitcast(DType.i32).mul(zero))
  const scaled = centred.cast(DType.f32).mul(scale)
  const shifted = minimum === undefined
    ? scaled
    : scaled.sub(sums.bitcast(DType.i32).cast(DType.f32).mul(minimum))
  return shifted.mul(part(scaleAt, 1).bitcast(DType.f32)).sum({ axis: [-2, -1] })
}
