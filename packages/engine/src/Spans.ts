/**
 * Ranges of positions whose steps of a few tokens have programs of their own. How attention is computed in the least time depends on how many positions are
 * behind a token: pieces that suit the end of a long context cost its beginning a tenth of a step, and the other way round.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { piece } from "@tg/model-parts/Attention"

/**
 * Positions of the first span. On an H100 a step of 16 tokens of GLM-4.7-Flash takes 9.4 ms behind nothing and 16.8 behind 4096 with the program that is best behind
 * nothing, and 10.9 and 12.5 with the one that is best in a context of 16384.
 */
const firstPositions = 2048

/**
 * Scores that a head has at most in the first span of many tokens, where a device has matrix units. From so many on it pays to store them; a step with fewer waits for the launches that
 * this takes. 32 tokens of GLM-4.7-Flash take an H100 19 us a layer less behind nothing with the program for up to 512 positions than with the one for up to 2048 (docs/pieces.md).
 */
const firstScores = 16384

/** Positions of the first span of steps of so many tokens: whole pieces. */
const firstOf = (tokens: number, { matrixUnits = false }: Quantities): number =>
  matrixUnits
    ? Math.min(firstPositions, Math.max(piece, firstScores / 2 ** Math.ceil(Math.log2(tokens))))
    : firstPositions

/** Positions of steps: `from` is the first one, `to` the one behind the last. */
export interface Span {
  readonly from: number
  readonly to: number
}

/** A span that is no longer than half of those in front of it is part of the last of these: it would not pay for being compiled. */
const leastGrowth = 1.5

/** What spans ask of a device. */
type Quantities = Pick<DeviceProfile, "kind" | "matrixUnits">

/** What spans depend on: contexts of a CPU are one. */
export interface Within {
  readonly context: number
  /** Tokens of a step; one if it is not said. */
  readonly chunk?: number | undefined
  readonly profile?: Quantities | undefined
  /** Positions of the first span; 2048 if it is not said, or fewer of many tokens. */
  readonly first?: number | undefined
}

/**
 * The range of a position: those of the first span, and each time as many again as there are in front, but all up to 2048 at once. One range for all positions on a CPU,
 * which has a kernel for all of them.
 */
export const at = (position: number, { context, chunk = 1, first, profile }: Within): Span => {
  if (profile?.kind !== "gpu") return { from: 0, to: context }
  const whole = first ?? firstPositions
  for (let [from, to] = [0, first ?? firstOf(chunk, profile)];; [from, to] = [to, Math.max(whole, 2 * to)]) {
    if (leastGrowth * to > context) return { from, to: context }
    if (position < to) return { from, to }
  }
}

/** All ranges of a context, in order. */
export const all = (within: Within): ReadonlyArray<Span> => {
  const spans: Array<Span> = []
  for (let from = 0; from < within.context; from = spans.at(-1)!.to) spans.push(at(from, within))
  return spans
}
