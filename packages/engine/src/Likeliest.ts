/**
 * The likeliest token of each row on a device, as `Sampler.sample` takes it: of equal logits the lowest id, and none of a row
 * that is no distribution.
 */
import * as DType from "@tg/core-uop/DType"
import { iota, type Tensor } from "@tg/tensor/Tensor"
import { largestFloat } from "./Sampler.ts"

// Rows longer than this are cut into pieces, so many that threads share both the elements of one and the pieces.
const longRow = 4096
const piece = 1024
const fewestPieces = 32

/** What logits are, said without floating point: a device may treat NaN as it likes. */
export const kinds = (logits: Tensor): {
  /** Above `-Infinity` and below the largest float. */
  readonly isNumber: Tensor
  /** NaN, or not below the largest float. */
  readonly isInvalid: Tensor
} => {
  const bits = logits.bitcast(DType.u32)
  // from the largest float on to the last positive NaN; the negative ones stand behind -Infinity
  const isInvalid = bits.sub(0x7f7fffff).lt(0x800001).or(bits.gt(0xff800000))
  return { isInvalid, isNumber: isInvalid.or(bits.eq(0xff800000)).not() }
}

/**
 * The tokens of logits `[R, n]`, `[R]`, each of those that are allowed, `[R, n]`; `n` or above where there is none. What is invalid
 * counts as the largest float, below which logits have to be, so the largest one found tells whether a row is a distribution.
 */
export const likeliest = (logits: Tensor, allowed?: Tensor): Tensor => {
  const [rows, n] = [logits.dim(0), Number(logits.dim(-1))]
  const size = n <= longRow ? n : piece
  const step = n <= longRow ? n : piece * fewestPieces
  const whole = Math.ceil(n / step) * step
  const position = iota(logits.arena, whole).cast(DType.i32)
  const cut = (x: Tensor): Tensor => x.pad([[0, 0], [0, whole - n]]).reshape([rows, whole / size, size])
  const { isInvalid, isNumber } = kinds(logits)
  const isCandidate = cut(allowed === undefined ? isNumber : isNumber.and(allowed))
  const value = cut(isInvalid).where(largestFloat, isCandidate.where(cut(logits), -largestFloat))
  const top = value.max(-1).max({ axis: -1, keepDims: true }).reshape([rows, 1, 1])
  const isTop = isCandidate.and(value.eq(top)).and(top.lt(largestFloat))
  return isTop.where(position.reshape([1, whole / size, size]), n).min(-1).min(-1).cast(DType.u32)
}
