/**
 * What of Effect's `Duration` bundles for pages have in its place (`NodeBundling`): milliseconds that our code says as numbers, and
 * nanoseconds that a clock has counted. Nothing of ours says a duration in words.
 */

interface Duration {
  readonly millis: number
}

export const millis = (millis: number): Duration => ({ millis: millis || 0 })

export const nanos = (nanos: bigint): Duration => ({ millis: Number(nanos) / 1e6 })

export const fromInputUnsafe = (input: number | Duration): Duration => {
  if (typeof input === "number") return millis(input)
  if (typeof input.millis === "number") return input
  throw new Error(`pages have durations as numbers of milliseconds, and not as ${JSON.stringify(input)}`)
}

export const toMillis = (input: number | Duration): number => fromInputUnsafe(input).millis

export const format = ({ millis }: Duration): string => `${millis}ms`
