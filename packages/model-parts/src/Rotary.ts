/** Rotary positions: angles on the host in double precision, rotation as tensor code. */
import * as DType from "@tg/core-uop/DType"
import { iota, type Tensor } from "@tg/tensor/Tensor"

/** Context extension by interpolating the slow rotations. */
export interface Yarn {
  readonly factor: number
  readonly originalContext: number
}

/** What the angles of a head depend on. */
export interface Angles {
  readonly base: number
  /** Values that are rotated: twice the pairs. */
  readonly rotated: number
  readonly yarn?: Yarn | undefined
  /** Angles are divided by it; 1 if it is not said. */
  readonly linear?: number | undefined
  /** By what the angle of each pair is divided, too. */
  readonly divisors?: ArrayLike<number> | undefined
}

const clamp = (x: number): number => Math.min(1, Math.max(0, x))

/** Radians per position of each pair of values. */
export const frequencies = ({ base, divisors, linear = 1, rotated, yarn }: Angles): ReadonlyArray<number> => {
  const plain = Array.from(
    { length: rotated / 2 },
    (_, j) => base ** (-2 * j / rotated) / linear / (divisors?.[j] ?? 1)
  )
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

/** Cosine and sine for each position and pair, times a magnitude: `[positions, pairs, 2]`. */
export const table = (
  frequencies: ReadonlyArray<number>,
  magnitude: number,
  positions: ReadonlyArray<number>
): Float32Array => {
  const values = new Float32Array(positions.length * frequencies.length * 2)
  let at = 0
  for (const position of positions) {
    for (const frequency of frequencies) {
      values[at++] = magnitude * Math.cos(position * frequency)
      values[at++] = magnitude * Math.sin(position * frequency)
    }
  }
  return values
}

/** Which values are rotated together: 2j with 2j + 1, or j with j + R/2. */
export type Pairs = "neighbours" | "halves"

/**
 * Rotates pairs (a, b) of the last axis, `x [T, ..., R]` by `cosSin [T, R/2, 2]`: a' = a cos - b sin, b' = b cos + a sin.
 */
export const rotate = (x: Tensor, cosSin: Tensor, pairs: Pairs = "neighbours"): Tensor => {
  const [tokens, half] = cosSin.shape
  const between = x.shape.slice(1, -1).map(() => 1)
  const sign = iota(x.arena, 2).cast(DType.f32).mul(2).sub(1)
  if (pairs === "neighbours") {
    const paired = x.reshape([...x.shape.slice(0, -1), half!, 2])
    const table = cosSin.reshape([tokens!, ...between, half!, 2])
    return paired.mul(table.slice(-1, 0, 1)).add(paired.flip(-1).mul(table.slice(-1, 1, 1).mul(sign))).reshape(x.shape)
  }
  const paired = x.reshape([...x.shape.slice(0, -1), 2, half!])
  const of = (part: number): Tensor => cosSin.slice(-1, part, 1).reshape([tokens!, ...between, 1, half!])
  return paired.mul(of(0)).add(paired.flip(-2).mul(of(1).mul(sign.reshape([2, 1])))).reshape(x.shape)
}
