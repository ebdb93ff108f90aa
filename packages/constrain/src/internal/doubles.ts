/** Doubles as the integers of their bits, which have the same order. */

const view = new DataView(new ArrayBuffer(8))

/** The bits of a double. */
export const bitsOf = (value: number): bigint => {
  view.setFloat64(0, value)
  return view.getBigUint64(0)
}

/** The double of these bits. */
export const fromBits = (bits: bigint): number => {
  view.setBigUint64(0, bits)
  return view.getFloat64(0)
}

/** The next larger double. */
export const after = (value: number): number => {
  if (value === 0) return Number.MIN_VALUE
  return value > 0 ? fromBits(bitsOf(value) + 1n) : fromBits(bitsOf(value) - 1n)
}

/** The characters of numbers; the digits first. */
export const alphabet = [..."0123456789.e+-"]
