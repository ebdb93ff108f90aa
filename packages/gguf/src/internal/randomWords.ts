/** Random 32-bit words: xorshift with 128 bits of state (Marsaglia 2003), about a nanosecond a word. */

/** Four words, not all zero; `words` moves them on. */
export type State = Int32Array

/** A state for a seed and a name: equal for equal ones, unrelated for others. */
export const seedOf = (seed: number, name: string): State => {
  // both halves of a seed of up to 53 bits, then the name
  let hash = 0x811c9dc5
  for (const part of [seed, Math.floor(seed / 2 ** 32), ...Array.from(name, (c) => c.codePointAt(0)!)]) {
    hash = Math.imul(hash ^ part, 0x9e3779b1)
    hash ^= hash >>> 15
  }
  const state = Int32Array.from({ length: 4 }, () => {
    hash = hash + 0x9e3779b9 | 0
    const x = Math.imul(hash ^ hash >>> 16, 0x85ebca6b)
    const y = Math.imul(x ^ x >>> 13, 0xc2b2ae35)
    return y ^ y >>> 16
  })
  state[3]! |= 1
  // the first words still resemble the seed
  words(state, new Uint32Array(64))
  return state
}

/** Fills and returns the array. */
export const words = (state: State, into: Uint32Array): Uint32Array => {
  let [x, y, z, w] = state as unknown as [number, number, number, number]
  for (let i = 0; i < into.length; i++) {
    const t = x ^ x << 11
    x = y
    y = z
    z = w
    w = w ^ w >>> 19 ^ t ^ t >>> 8
    into[i] = w
  }
  state[0] = x
  state[1] = y
  state[2] = z
  state[3] = w
  return into
}
