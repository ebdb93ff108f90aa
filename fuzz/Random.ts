/** Numbers that are the same for the same seed, on every machine. */

/** A source of choices. */
export interface Random {
  /** An integer from 0 to below `n`. */
  readonly below: (n: number) => number
  /** True in one of `n` cases. */
  readonly oneIn: (n: number) => boolean
  readonly pick: <A>(items: ReadonlyArray<A>) => A
}

/** The choices of a case: every case has its own, so that it can be made again without those before it. */
export const random = (seed: number, index: number): Random => {
  let state = Math.imul(seed, 0x9e3779b1) ^ Math.imul(index + 1, 0x85ebca6b)
  const next = (): number => {
    state = state + 0x6d2b79f5 | 0
    const a = Math.imul(state ^ state >>> 15, 1 | state)
    const b = a + Math.imul(a ^ a >>> 7, 61 | a) ^ a
    return (b ^ b >>> 14) >>> 0
  }
  const below = (n: number): number => next() % n
  return { below, oneIn: (n) => below(n) === 0, pick: (items) => items[below(items.length)]! }
}
