/** What `tg bench` measures, and its speeds. */
import { UsageError } from "./Report.ts"

/** `0,4096` as numbers, each once. */
export const parseDepths = (text: string): ReadonlyArray<number> | UsageError => {
  const parts = text.split(",").map((part) => part.trim())
  const bad = parts.find((part) => !/^\d{1,9}$/.test(part))
  return bad === undefined
    ? [...new Set(parts.map(Number))]
    : new UsageError({
      message: `--depth has ${JSON.stringify(bad)}; give numbers of tokens with commas between: 0,4096`
    })
}

/** What is measured. */
export interface Asked {
  readonly prompt: number
  readonly generate: number
  readonly depths: ReadonlyArray<number>
}

/** Tokens that are in the cache at most: decoding starts behind one at least. */
export const neededTokens = ({ depths, generate, prompt }: Asked): number =>
  Math.max(...depths.map((depth) => Math.max(depth + prompt, Math.max(depth, 1) + generate)))

/** Speed over repeated measurements. */
export interface Spread {
  readonly mean: number
  readonly min: number
  readonly max: number
}

/** One measurement. */
export interface Measured {
  readonly tokens: number
  /** Tokens that were in the cache before. */
  readonly depth: number
  readonly tokensPerSecond: Spread
}

/** Tokens per second from the times of equal work. The mean is that of the speeds. */
export const spread = (tokens: number, micros: ReadonlyArray<number>): Spread => {
  const speeds = micros.map((time) => tokens * 1e6 / time)
  return {
    mean: round(speeds.reduce((a, b) => a + b, 0) / speeds.length),
    min: round(Math.min(...speeds)),
    max: round(Math.max(...speeds))
  }
}

/** Five digits of a measurement. */
export const round = (value: number): number => Number(value.toPrecision(5))

/** A sequence of ids of the vocabulary that looks like none in particular: equal for equal arguments. */
export const tokenIds = (count: number, seed: number, vocabulary: number): ReadonlyArray<number> =>
  Array.from(
    { length: count },
    (_, i) => (Math.imul(i + 1, 0x9e3779b1) + Math.imul(seed, 0x85ebca6b) >>> 8) % vocabulary
  )
