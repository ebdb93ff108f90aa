/** Numbers that look random and are the same on every machine. */
export const random = (seed: number) => {
  let state = seed
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (n: number): number => Math.floor(next() * n)
  const pick = <A>(from: ReadonlyArray<A>): A => from[below(from.length)]!
  return { next, below, pick }
}

/** A source of such numbers. */
export type Random = ReturnType<typeof random>
