/** Leaves for JSON scalars, shared by all grammars that need the same ones: so are the masks that a table keeps of them. */
import * as CharDfa from "./charDfa.ts"
import * as Leaf from "./leaf.ts"
import * as Numbers from "./numbers.ts"
import type { Leaf as Rule } from "./rule.ts"

/** A JSON string, whatever is in it. */
export const plainString: Rule = Leaf.ofJsonString("string", CharDfa.anything)!

/** A greatest length is spelled out in states up to this many; beyond, characters are counted. */
const maxSpelledStates = 2048

const kept = new WeakMap<CharDfa.CharDfa, Map<string, Rule | undefined>>()

const keep = (dfa: CharDfa.CharDfa, key: string, make: () => Rule | undefined): Rule | undefined => {
  const leaves = kept.get(dfa) ?? new Map<string, Rule | undefined>()
  kept.set(dfa, leaves)
  if (!leaves.has(key)) leaves.set(key, make())
  return leaves.get(key)
}

/** The JSON strings of a language with a bounded number of characters; undefined if there are none. */
export const stringLeaf = (dfa: CharDfa.CharDfa, min: number, max: number): Rule | undefined => {
  const isPlain = CharDfa.isAll(dfa)
  if (isPlain && min === 0 && max === Infinity) return plainString
  return keep(isPlain ? CharDfa.anything : dfa, `${min},${max}`, () => {
    if (isPlain) return Leaf.ofJsonString("string", dfa, { min, max })
    const spelledMax = dfa.accept.length * max <= maxSpelledStates ? max : Infinity
    const spelled = CharDfa.intersect(dfa, CharDfa.lengthBetween(min, spelledMax))
    return Leaf.ofJsonString("string", spelled, { min: 0, max: spelledMax === Infinity ? max : Infinity })
  })
}

/** The numbers of a language; undefined if there are none. */
export const numberLeaf = (dfa: CharDfa.CharDfa): Rule | undefined =>
  CharDfa.isEmpty(dfa) ? undefined : keep(dfa, "number", () => Leaf.ofText("number", Numbers.spelled(dfa)))
