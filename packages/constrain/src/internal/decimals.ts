/** Comparing the texts of numbers with doubles, exactly: a text means the double that is nearest to it. */
import * as CharDfa from "./charDfa.ts"
import * as CodePoints from "./codePoints.ts"
import { after, alphabet } from "./doubles.ts"
import { atLeastMagnitude } from "./magnitude.ts"

/** `-` and a text of the language. */
const negative = (dfa: CharDfa.CharDfa): CharDfa.CharDfa => {
  const { classes, members, starts } = CharDfa.partition([
    [[0x2d, 0x2d]],
    ...dfa.starts.map((start, i) => [[start, (dfa.starts[i + 1] ?? 0x110000) - 1]] as const)
  ])
  return CharDfa.explore<number>({
    starts,
    classes,
    width: members.length,
    start: -1,
    keyOf: (state) => state,
    step: (state, c) => {
      if (state === -2) return state
      if (state === -1) return members[c]!.includes(0) ? 0 : -2
      return dfa.next[state * dfa.width + dfa.classes[members[c]!.at(-1)! - 1]!]!
    },
    accepts: (state) => state >= 0 && dfa.accept[state] === 1
  })
}

const known = new Map<number, CharDfa.CharDfa>()

/** The texts of numbers (given all of them) that are read as a double of at least `value`. */
export const atLeast = (all: CharDfa.CharDfa, value: number): CharDfa.CharDfa => {
  const found = known.get(value)
  if (found !== undefined) return found
  const made = compute(all, value)
  if (known.size >= 512) known.clear()
  known.set(value, made)
  return made
}

const compute = (all: CharDfa.CharDfa, value: number): CharDfa.CharDfa => {
  if (value === Infinity) return CharDfa.nothing
  if (value === -Infinity) return all
  if (value > 0) return CharDfa.intersect(all, atLeastMagnitude(value))
  if (value === 0) return CharDfa.subtract(all, negative(CharDfa.anything))
  const larger = after(-value)
  return larger === Infinity ? all : CharDfa.subtract(all, negative(atLeastMagnitude(larger)))
}

/** More remainders than this are refused. */
export const maxRemainders = 1000

/** A positive double as the shortest decimal that is read as it: numerator / 10^places, in lowest terms of ten. */
const fractionOf = (value: number): readonly [numerator: bigint, places: number] => {
  const [mantissa, exponent] = value.toExponential().split("e") as [string, string]
  const [whole, fraction = ""] = mantissa.split(".") as [string, string | undefined]
  const places = fraction.length - Number(exponent)
  const numerator = BigInt(whole + fraction)
  return places < 0 ? [numerator * 10n ** BigInt(-places), 0] : [numerator, places]
}

/**
 * The plain decimals that are a multiple of a step, and all numbers from 1e21 on if all of those are. Undefined if there
 * would be too many remainders, or multiples below 1e-6 that are no integers.
 */
export const multiplesOf = (step: number, isOfIntegers: boolean): CharDfa.CharDfa | undefined => {
  const [numerator, places] = fractionOf(step)
  if (numerator > BigInt(maxRemainders) || places > 25 || (places > 6 && !isOfIntegers)) return undefined
  const modulus = Number(numerator)
  const power = (exponent: number): number => Number(10n ** BigInt(exponent) % numerator)
  // from 1e21 on a text stands for a multiple of ten
  const bigAll = power(1 + places) === 0
  const { classes, members, starts } = CharDfa.partition(alphabet.map((char) => CodePoints.ofText(char)))
  type State = {
    readonly phase: "integer" | "fraction" | "inexact" | "big" | "dead"
    readonly rest: number
    readonly digits: number
  }
  const dead: State = { phase: "dead", rest: 0, digits: 0 }
  const digit = (state: State, d: number): State => {
    const rest = (state.rest * 10 + d) % modulus
    if (state.phase === "integer") return { ...state, rest }
    if (state.phase !== "fraction") return state
    if (state.digits < places) return { ...state, rest, digits: state.digits + 1 }
    return d === 0 ? state : { phase: "inexact", rest: 0, digits: 0 }
  }
  return CharDfa.explore<State>({
    starts,
    classes,
    width: members.length,
    start: { phase: "integer", rest: 0, digits: 0 },
    keyOf: ({ digits, phase, rest }) => `${phase},${rest},${digits}`,
    step: (state, c) => {
      const index = members[c]![0]
      if (index === undefined || state.phase === "dead") return dead
      if (index < 10) return digit(state, index)
      const char = alphabet[index]
      if (state.phase === "big") return char === "+" ? state : dead
      if (char === ".") return { ...state, phase: "fraction" }
      if (char === "-") return state
      return char === "e" && bigAll ? { phase: "big", rest: 0, digits: 0 } : dead
    },
    accepts: ({ digits, phase, rest }) =>
      phase === "big" ||
      ((phase === "integer" || phase === "fraction") && (rest * power(places - digits)) % modulus === 0)
  })
}
