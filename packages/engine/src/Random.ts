/** A small deterministic random number generator whose state is a value: equal seeds give equal texts on every machine. */

/** The state: two halves of a 64-bit counter and two halves of its mixed key. */
export interface Random {
  readonly key: number
  readonly count: number
}

/** The generator of a seed: any integer, of which 53 bits count. */
export const make = (seed: number): Random => ({
  key: mix(mix(seed >>> 0) ^ Math.floor(seed / 2 ** 32)),
  count: 0
})

/** A number in [0, 1) with 53 bits, and the state after it. */
export const next = (random: Random): readonly [number, Random] => {
  const high = mix(random.key ^ mix(random.count * 2)) >>> 5
  const low = mix(random.key ^ mix(random.count * 2 + 1)) >>> 6
  return [(high * 2 ** 26 + low) / 2 ** 53, { key: random.key, count: random.count + 1 }]
}

// A bijection of 32-bit words in which every input bit moves every output bit: odd multipliers and xor-shifts.
const mix = (x: number): number => {
  let h = (x + 0x9e3779b9) | 0
  h = Math.imul(h ^ (h >>> 16), 0x21f0aaad)
  h = Math.imul(h ^ (h >>> 15), 0x735a2d97)
  return (h ^ (h >>> 15)) >>> 0
}
