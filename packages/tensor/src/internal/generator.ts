/** A generator of uniform 32-bit numbers: xorshift32 over a scrambled seed. */
export const generator = (seed: number): () => number => {
  let state = Math.imul(seed + 1, 0x9e3779b1) ^ 0x6a09e667
  if (state === 0) state = 1
  const next = (): number => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return state >>> 0
  }
  for (let i = 0; i < 4; i++) next()
  return next
}
