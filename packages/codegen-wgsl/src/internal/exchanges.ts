/** Stores whose thread knows when they are in memory: each returns the word that was there before. */

/** What exchanges have returned, and what the last ones will: nothing waits for those before the next ones are on their way. */
export const variables = ["var returned = 0u;", "var pending = vec4<u32>();"]

/** Waits for the last exchanges, of four words at most. */
export const gather = "returned |= pending.x | pending.y | pending.z | pending.w;"

/** Stores the word of a lane, behind `gather`. */
export const exchange = (target: string, word: string, lane: number): string =>
  `pending.${"xyzw"[lane]!} = atomicExchange(&${target}, ${word});`
