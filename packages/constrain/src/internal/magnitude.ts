/** The unsigned texts of numbers that are read as a positive double or more, as an automaton that compares digit by digit. */
import * as CharDfa from "./charDfa.ts"
import * as CodePoints from "./codePoints.ts"
import { alphabet, bitsOf, fromBits } from "./doubles.ts"

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

const orderOf = (digit: number, other: string | undefined, before: Order): Order => {
  if (before !== 0) return before
  const expected = Number(other ?? "0")
  return digit < expected ? -1 : digit > expected ? 1 : 0
}

/** What texts are compared with. */
interface Bound extends Threshold {
  /** All digits, without leading zeros. */
  readonly significant: string
  /** Of its first digit. */
  readonly exponent: number
}

const boundOf = (value: number): Bound => {
  const threshold = thresholdOf(value)
  const { fraction, integer } = threshold
  return {
    ...threshold,
    significant: (integer + fraction).replace(/^0+/, ""),
    exponent: integer !== "" ? integer.length - 1 : -1 - (fraction.length - fraction.replace(/^0+/, "").length)
  }
}

/** Whether a text is enough that compares like this with all the digits it has: `read` of these. */
const decide = ({ isIncluded }: Bound, order: Order, digits: string, read: number): boolean =>
  order > 0 || (order === 0 && read >= digits.replace(/0+$/, "").length && isIncluded)

/** Whether the text may end here. */
const isEnough = (bound: Bound, place: Place): boolean => {
  const { exponent, fraction, integer } = bound
  switch (place._tag) {
    case "Start":
    case "Sign":
      return false
    case "Integer":
      return place.length > integer.length ||
        (place.length === integer.length && decide(bound, place.order, fraction, 0))
    case "Fraction":
      return decide(bound, place.order, fraction, place.length)
    case "Exponent": {
      const found = place.sign * place.value
      return found > exponent || (found === exponent && place.isEnough)
    }
    case "Done":
      return place.isEnough
  }
}

/** The place behind a digit. */
const afterDigit = ({ exponent, fraction, integer, significant }: Bound, place: Place, d: number): Place => {
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

/** The place behind a point, a sign or an `e`. */
const afterMark = (bound: Bound, place: Place, char: string): Place => {
  const { integer, significant } = bound
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
    return { _tag: "Sign", isEnough: decide(bound, place.mantissa, significant, 1) }
  }
  if (char === "e" && place._tag === "Fraction") {
    return { _tag: "Sign", isEnough: decide(bound, place.mantissa, significant, place.length + 1) }
  }
  if (place._tag === "Sign") {
    return { _tag: "Exponent", isEnough: place.isEnough, sign: char === "-" ? -1 : 1, value: 0 }
  }
  return { _tag: "Done", isEnough: false }
}

/** The texts of unsigned numbers that are read as a positive double of at least `value`. */
export const atLeastMagnitude = (value: number): CharDfa.CharDfa => {
  const bound = boundOf(value)
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
      return index < 10 ? afterDigit(bound, place, index) : afterMark(bound, place, alphabet[index]!)
    },
    accepts: (place) => isEnough(bound, place)
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
