/** What `tg bench` measures, and its speeds. */
import { UsageError } from "./Report.ts"

/** What a flag takes: numbers from the least to the most one, and how that is said to who gave others. */
export interface Numbers {
  readonly flag: string
  readonly least: number
  readonly most: number
  readonly hint: string
}

/** Numbers with commas between, each once. */
export const numbersIn = (text: string, { flag, hint, least, most }: Numbers): ReadonlyArray<number> | UsageError => {
  const parts = text.split(",").map((part) => part.trim())
  const digits = String(most).length
  const isOne = (part: string): boolean =>
    /^\d+$/.test(part) && part.length <= digits && Number(part) >= least && Number(part) <= most
  const bad = parts.find((part) => !isOne(part))
  return bad === undefined
    ? [...new Set(parts.map(Number))]
    : new UsageError({ message: `${flag} has ${JSON.stringify(bad)}; give ${hint}` })
}

/** `0,4096` as numbers, each once. */
export const parseDepths = (text: string): ReadonlyArray<number> | UsageError =>
  numbersIn(text, {
    flag: "--depth",
    least: 0,
    most: 999_999_999,
    hint: "numbers of tokens with commas between: 0,4096"
  })

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
