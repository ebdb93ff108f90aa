/** Root of the mean square of the difference, relative to the standard deviation of what is expected. */
export const distance = (found: Float32Array, expected: Float32Array): number => {
  const mean = expected.reduce((a, b) => a + b, 0) / expected.length
  let off = 0
  let spread = 0
  for (let i = 0; i < expected.length; i++) {
    off += (found[i]! - expected[i]!) ** 2
    spread += (expected[i]! - mean) ** 2
  }
  return Math.sqrt(off / spread)
}
