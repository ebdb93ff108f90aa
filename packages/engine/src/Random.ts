/** The random numbers of sampling: 32-bit words that depend on a seed, a place in the text and a token, on nothing else. */

/** Two words. */
export type Words = readonly [number, number]

/** The words of a place in a text: any seed (of which 53 bits count), and the number of tokens in front of it. */
export const words = (seed: number, position: number): Words => {
  const key = keyOf(seed)
  return [mix(key ^ mix(position * 2)), mix(key ^ mix(position * 2 + 1))]
}

/** What of a seed its words depend on. */
export const keyOf = (seed: number): number => mix(mix(seed >>> 0) ^ Math.floor(seed / 2 ** 32))

/** The words of one token at a place, each uniform over the 32-bit integers. */
export const ofToken = ([a, b]: Words, id: number): Words => {
  const own = mix(id + a)
  return [mix(own ^ b), mix(own + b)]
}

/** Numbers of `mix`: it adds the first, and multiplies by the others between shifts by `shifts`. */
export const mixer = { add: 0x9e3779b9, factors: [0x21f0aaad, 0x735a2d97], shifts: [16, 15, 15] } as const

// A bijection of 32-bit words in which every input bit moves every output bit: odd multipliers and xor-shifts.
const mix = (x: number): number => {
  let h = (x + mixer.add) | 0
  h = Math.imul(h ^ (h >>> mixer.shifts[0]), mixer.factors[0])
  h = Math.imul(h ^ (h >>> mixer.shifts[1]), mixer.factors[1])
  return (h ^ (h >>> mixer.shifts[2])) >>> 0
}
