/** How far the states of an automaton are from acceptance. */
import type { CharDfa } from "./charDfa.ts"

/** For each state the least number of characters to an accepting one; Infinity where there is none. */
export const distances = (dfa: CharDfa): Float64Array => {
  const { next, width } = dfa
  const found = Float64Array.from(dfa.accept, (accepts) => accepts === 1 ? 0 : Infinity)
  const surrogate = classOf(dfa, 0xd800)
  // the sources of state s are sources[from[s]] to sources[from[s + 1] - 1]
  const from = new Int32Array(found.length + 1)
  const counts = (at: number): boolean => at % width !== surrogate && next[at] !== Math.floor(at / width)
  for (let at = 0; at < next.length; at++) if (counts(at)) from[next[at]! + 1]! += 1
  for (let state = 0; state < found.length; state++) from[state + 1]! += from[state]!
  const sources = new Int32Array(from[found.length]!)
  const filled = from.slice()
  for (let at = 0; at < next.length; at++) if (counts(at)) sources[filled[next[at]!]!++] = Math.floor(at / width)
  const queue: Array<number> = []
  found.forEach((distance, state) => {
    if (distance === 0) queue.push(state)
  })
  for (const state of queue) {
    for (let i = from[state]!; i < from[state + 1]!; i++) {
      const source = sources[i]!
      if (found[source] !== Infinity) continue
      found[source] = found[state]! + 1
      queue.push(source)
    }
  }
  return found
}

/** The class of a character. */
export const classOf = (dfa: CharDfa, codePoint: number): number => {
  let at = 0
  while (at + 1 < dfa.starts.length && dfa.starts[at + 1]! <= codePoint) at++
  return dfa.classes[at]!
}
