/**
 * The two functions of sampling that are not exact anywhere, as tables of integers that all devices share: what a device
 * computes from them is the same everywhere. Logarithms are to base 2, in units of 2^-16.
 *
 *     word  0 .. 2^16 - 1       noise: log2(-ln(1 - X)) + 32 for X in cell [z, m], at 2^12 z + m
 *     word  2^16 .. + 255       2^(-i / 2^8), in units of 2^-15
 *     word  2^16 + 256 .. + 255 2^(-i / 2^16), in units of 2^-16
 */

/** One, as a logarithm. */
export const octave = 2 ** 16

/** Bits of a cell's place in its octave. */
export const mantissaBits = 12
/** Octaves of X with cells of their own. Further ones look like the last, each an octave lower. */
export const noiseRows = 16
/** What is added to the noise so that it is not negative. */
export const noiseOffset = 32 * octave

/** Where powers of two begin. */
export const powersAt = noiseRows * 2 ** mantissaBits
const powers = 256

/** Words of the table. */
export const words = powersAt + 2 * powers

/** All words. */
export const make = (): Uint32Array => {
  const table = new Uint32Array(words)
  const cells = 2 ** mantissaBits
  for (let z = 0; z < noiseRows; z++) {
    for (let m = 0; m < cells; m++) {
      // the middle of a cell
      const x = 2 ** (-z - 1) * (1 + (m + 0.5) / cells)
      table[z * cells + m] = Math.round(octave * Math.log2(-Math.log1p(-x))) + noiseOffset
    }
  }
  for (let i = 0; i < powers; i++) {
    table[powersAt + i] = Math.round(2 ** (15 - i / 2 ** 8))
    table[powersAt + powers + i] = Math.round(2 ** (16 - i / 2 ** 16))
  }
  return table
}

let made: Uint32Array | undefined

/** The table, made once. */
export const shared = (): Uint32Array => made ??= make()

/** The noise of two random words: the logarithm of an exponential variate, plus `noiseOffset`. */
export const noise = (table: Uint32Array, high: number, low: number): number => {
  const z = Math.min(31, Math.clz32(high))
  const row = Math.min(z, noiseRows - 1)
  return table[row * 2 ** mantissaBits + (low >>> (32 - mantissaBits))]! - (z - row) * octave
}

/** The mass of a token at a distance from the likeliest, which has 2^27. */
export const mass = (table: Uint32Array, distance: number): number => {
  const fraction = distance & 0xffff
  const product = table[powersAt + (fraction >>> 8)]! * table[powersAt + powers + (fraction & 255)]!
  // 31 bits and 4 more down to 2^27
  return product / 2 ** Math.min(31, 4 + (distance >>> 16)) >>> 0
}
