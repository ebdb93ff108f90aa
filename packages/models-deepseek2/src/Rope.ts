/** Rotary positions: angles on the host in double precision, rotation as tensor code. */
import * as DType from "@tg/core-uop/DType"
import { iota, type Tensor } from "@tg/tensor/Tensor"
import { type Config, headSize } from "./Config.ts"

const clamp = (x: number): number => Math.min(1, Math.max(0, x))

/** Radians per position of each pair of values. */
export const frequencies = (config: Config): ReadonlyArray<number> => {
  const { rope: { base, yarn }, rotated } = config
  const plain = Array.from({ length: rotated / 2 }, (_, j) => base ** (-2 * j / rotated))
  if (yarn === undefined) return plain
  // pair whose wave makes r turns in the original context
  const pairOf = (r: number): number =>
    rotated * Math.log(yarn.originalContext / (2 * Math.PI * r)) / (2 * Math.log(base))
  const low = Math.max(0, Math.floor(pairOf(32)))
  const high = Math.min(rotated - 1, Math.ceil(pairOf(1)))
  return plain.map((frequency, j) => {
    const keep = 1 - clamp((j - low) / Math.max(0.001, high - low))
    return frequency * (keep + (1 - keep) / yarn.factor)
  })
}

/** Magnitudes that YaRN asks for: of the rotated values, and of the query-key product (to be squared). */
const magnitudes = (
  { rope: { attentionFactor, yarn } }: Config
): { readonly rotation: number; readonly product: number } => {
  if (yarn === undefined) return { rotation: attentionFactor, product: attentionFactor }
  const m = (s: number): number => 1 + 0.1 * s * Math.log(yarn.factor)
  // without a multiplier the rotated values grow by m(1); with one they grow by m(M) / m(M)
  return yarn.logMultiplier === 0
    ? { rotation: m(1) * attentionFactor, product: m(1) * attentionFactor }
    : { rotation: attentionFactor, product: m(yarn.logMultiplier) * attentionFactor }
}

/** The factor of query-key products before the softmax. */
export const attentionScale = (config: Config): number => magnitudes(config).product ** 2 / Math.sqrt(headSize(config))

/** Cosine and sine for each position and pair, `[positions, rotated / 2, 2]`. */
export const rope = (config: Config, positions: ReadonlyArray<number>): Float32Array => {
  const perPair = frequencies(config)
  const { rotation } = magnitudes(config)
  const table = new Float32Array(positions.length * perPair.length * 2)
  let at = 0
  for (const position of positions) {
    for (const frequency of perPair) {
      table[at++] = rotation * Math.cos(position * frequency)
      table[at++] = rotation * Math.sin(position * frequency)
    }
  }
  return table
}

/**
 * Rotates neighbouring pairs of the last axis, `x [T, ..., R]` by `cosSin [T, R/2, 2]`:
 * y[2j] = x[2j] cos - x[2j+1] sin, y[2j+1] = x[2j+1] cos + x[2j] sin.
 */
export const rotate = (x: Tensor, cosSin: Tensor): Tensor => {
  const [tokens, half] = cosSin.shape
  const between = x.shape.slice(1, -1)
  const pairs = x.reshape([...x.shape.slice(0, -1), half!, 2])
  const table = cosSin.reshape([tokens!, ...between.map(() => 1), half!, 2])
  const sign = iota(x.arena, 2).cast(DType.f32).mul(2).sub(1)
  return pairs.mul(table.slice(-1, 0, 1)).add(pairs.flip(-1).mul(table.slice(-1, 1, 1).mul(sign))).reshape(x.shape)
}
