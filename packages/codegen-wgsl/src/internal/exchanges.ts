/** Stores whose thread knows when they are in memory: each returns the word that was there before. */

/** What exchanges have returned, and what the last ones will: nothing waits for those before the next ones are on their way. */
export const variables = ["var returned = 0u;", "var pending = vec4<u32>();"]

/** Waits for the last exchanges. */
export const gather = "returned |= pending.x | pending.y | pending.z | pending.w;"

/** Stores words, at most four. */
export const exchange = (targets: ReadonlyArray<string>, words: ReadonlyArray<string>): ReadonlyArray<string> => [
  gather,
  ...targets.map((target, i) => `pending.${"xyzw"[i]!} = atomicExchange(&${target}, ${words[i]!});`)
]
