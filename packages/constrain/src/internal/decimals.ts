/** Comparing the texts of numbers with doubles, exactly: a text means the double that is nearest to it. */
import * as CharDfa from "./charDfa.ts"
import * as CodePoints from "./codePoints.ts"

const view = new DataView(new ArrayBuffer(8))

const bitsOf = (value: number): bigint => {
  view.setFloat64(0, value)
  return view.getBigUint64(0)
}

const fromBits = (bits: bigint): number => {
  view.setBigUint64(0, bits)
  return view.getFloat64(0)
}

/** The next larger double. */
export const after = (value: number): number => {
  if (value === 0) return Number.MIN_VALUE
  return value > 0 ? fromBits(bitsOf(value) + 1n) : fromBits(bitsOf(value) - 1n)
}

/** A positive double as mantissa * 2^exponent. */
const parts = (value: number): readonly [mantissa: bigint, exponent: number] => {
  const bits = bitsOf(value)
  const exponent = Number(bits >> 52n)
  const fraction = bits & ((1n << 52n) - 1n)
  return exponent === 0 ? [fraction, -1074] : [fraction | (1n << 52n), exponent - 1075]
}

/** The least decimal that is read as a positive double or more: its digits around the point, and whether it is one itself. */
interface Threshold {
  /** Without leading zeros. */
  readonly integer: string
  /** Without trailing zeros. */
  readonly fraction: string
  readonly isIncluded: boolean
}

/** Halfway between a positive double and the one before; a text in the middle is read as the one with the even mantissa. */
const thresholdOf = (value: number): Threshold => {
  const [mantissa, exponent] = parts(value)
  const [below, belowExponent] = value === Number.MIN_VALUE ? [0n, exponent] : parts(fromBits(bitsOf(value) - 1n))
  const least = Math.min(exponent, belowExponent)
  const sum = (mantissa << BigInt(exponent - least)) + (below << BigInt(belowExponent - least))
  const scale = least - 1 // the middle is sum * 2^scale
  const digits = scale >= 0 ? (sum << BigInt(scale)).toString() : (sum * 5n ** BigInt(-scale)).toString()
  const places = Math.max(0, -scale)
  const padded = digits.padStart(places + 1, "0")
  return {
    integer: padded.slice(0, padded.length - places).replace(/^0+/, ""),
    fraction: padded.slice(padded.length - places).replace(/0+$/, ""),
    isIncluded: mantissa % 2n === 0n
  }
}

/** How a text compares so far: below, equal, above. */
type Order = -1 | 0 | 1

/** Where the reader of an unsigned text is. */
type Place =
  | { readonly _tag: "Start" }
  | { readonly _tag: "Integer"; readonly length: number; readonly order: Order; readonly mantissa: Order }
  | {
    readonly _tag: "Fraction"
    readonly length: number
    readonly order: Order
    readonly mantissa: Order
    readonly hasMantissa: boolean
  }
  | { readonly _tag: "Sign"; readonly isEnough: boolean }
  | { readonly _tag: "Exponent"; readonly isEnough: boolean; readonly sign: 1 | -1; readonly value: number }
  | { readonly _tag: "Done"; readonly isEnough: boolean }

const alphabet = [..."0123456789.e+-"]

const orderOf = (digit: number, other: string | undefined, before: Order): Order => {
  if (before !== 0) return before
  const expected = Number(other ?? "0")
  return digit < expected ? -1 : digit > expected ? 1 : 0
}

const atLeastMagnitude = (value: number): CharDfa.CharDfa => {
  const { fraction, integer, isIncluded } = thresholdOf(value)
  const significant = (integer + fraction).replace(/^0+/, "")
  const exponent = integer !== "" ? integer.length - 1 : -1 - (fraction.length - fraction.replace(/^0+/, "").length)
  const rest = (digits: string, read: number): boolean => read < digits.replace(/0+$/, "").length
  const decide = (order: Order, digits: string, read: number): boolean =>
    order > 0 || (order === 0 && !rest(digits, read) && isIncluded)
  const isEnough = (place: Place): boolean => {
    switch (place._tag) {
      case "Start":
      case "Sign":
        return false
      case "Integer":
        return place.length > integer.length || (place.length === integer.length && decide(place.order, fraction, 0))
      case "Fraction":
        return decide(place.order, fraction, place.length)
      case "Exponent": {
        const found = place.sign * place.value
        return found > exponent || (found === exponent && place.isEnough)
      }
      case "Done":
        return place.isEnough
    }
  }
  const digit = (place: Place, d: number): Place => {
    switch (place._tag) {
      case "Start":
        if (d === 0) return { _tag: "Integer", length: 0, order: 0, mantissa: 0 }
        return { _tag: "Integer", length: 1, order: orderOf(d, integer[0], 0), mantissa: orderOf(d, significant[0], 0) }
      case "Integer": {
        if (place.length > maxInteger) return { _tag: "Done", isEnough: false }
        const length = Math.min(place.length + 1, integer.length + 1)
        return { _tag: "Integer", length, order: orderOf(d, integer[place.length], place.order), mantissa: 0 }
      }
      case "Fraction": {
        const order = orderOf(d, fraction[place.length], place.order)
        const mantissa = place.hasMantissa ? orderOf(d, significant[place.length + 1], place.mantissa) : 0
        return { ...place, length: place.length + 1, order, mantissa }
      }
      case "Exponent": {
        const next = place.value * 10 + d
        if (place.sign > 0 && next > exponent) return { _tag: "Done", isEnough: true }
        if (place.sign < 0 && -next < exponent) return { _tag: "Done", isEnough: false }
        return { ...place, value: next }
      }
      default:
        return place
    }
  }
  const other = (place: Place, char: string): Place => {
    if (char === "." && place._tag === "Integer") {
      const whole: Order = place.length > integer.length ? 1 : place.length < integer.length ? -1 : place.order
      return {
        _tag: "Fraction",
        length: 0,
        order: whole,
        mantissa: place.mantissa,
        hasMantissa: place.length === 1 || integer.length === 0
      }
    }
    if (char === "e" && place._tag === "Integer") {
      return { _tag: "Sign", isEnough: decide(place.mantissa, significant, 1) }
    }
    if (char === "e" && place._tag === "Fraction") {
      return { _tag: "Sign", isEnough: decide(place.mantissa, significant, place.length + 1) }
    }
    if (place._tag === "Sign") {
      return { _tag: "Exponent", isEnough: place.isEnough, sign: char === "-" ? -1 : 1, value: 0 }
    }
    return { _tag: "Done", isEnough: false }
  }
  const { classes, members, starts } = CharDfa.partition(alphabet.map((char) => CodePoints.ofText(char)))
  return CharDfa.explore<Place>({
    starts,
    classes,
    width: members.length,
    start: { _tag: "Start" },
    keyOf: (place) => JSON.stringify(settled(place)),
    step: (place, c) => {
      const index = members[c]![0]
      if (index === undefined) return { _tag: "Done", isEnough: false }
      return index < 10 ? digit(place, index) : other(place, alphabet[index]!)
    },
    accepts: isEnough
  })
}

/** No number has more digits before its point. */
const maxInteger = 21

/** Digits beyond those that a number may have are never asked for: a fraction has at most 25. */
const maxFraction = 26

/** Equal places have equal keys: lengths do not matter once everything is decided. */
const settled = (place: Place): Place =>
  place._tag === "Fraction" &&
    ((place.order !== 0 && (place.mantissa !== 0 || !place.hasMantissa)) || place.length >= maxFraction)
    ? { ...place, length: maxFraction }
    : place

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
