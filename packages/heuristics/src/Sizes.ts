/** Divisors and powers of two of sizes. */
import type * as Loops from "@tg/postrange/Loops"

/** The largest divisor of `size` that is at most `limit`. */
export const largestDivisor = (size: number, limit: number): number => {
  for (let d = Math.min(size, limit); d > 1; d--) if (size % d === 0) return d
  return 1
}

/** The largest power of two that divides `size` and is at most `limit`. */
export const largestPower = (size: number, limit: number): number => {
  let d = 1
  while (d * 2 <= limit && size % (d * 2) === 0) d *= 2
  return d
}

/** The nearest power of two, from 1. */
export const nearestPowerOfTwo = (x: number): number => 2 ** Math.max(0, Math.round(Math.log2(x)))

/** The largest power of two that is at most `limit`, from 1. */
export const largestPowerOfTwo = (limit: number): number => 2 ** Math.floor(Math.log2(Math.max(1, limit)))

/** Iterations of a loop nest, with the upper bounds of symbolic sizes. */
export const iterations = (loops: ReadonlyArray<Loops.Loop>): number => loops.reduce((n, loop) => n * loop.size, 1)
