/** Angles and magnitudes of this architecture's rotation. */
import * as Rotary from "@tg/model-parts/Rotary"
import { type Config, headSize } from "./Config.ts"

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

/** Radians per position of each pair of values. */
export const frequencies = ({ rope: { base, yarn }, rotated }: Config): ReadonlyArray<number> =>
  Rotary.frequencies({ base, rotated, yarn })

/** Cosine and sine for each position and pair, `[positions, rotated / 2, 2]`. */
export const rope = (config: Config, positions: ReadonlyArray<number>): Float32Array =>
  Rotary.table(frequencies(config), magnitudes(config).rotation, positions)
