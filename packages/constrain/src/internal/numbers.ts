/**
 * Languages of JSON numbers. The texts are those that JSON.stringify can write, and fractions with more digits or trailing
 * zeros: an integer of at most 21 digits, a fraction of at most 25, or one digit, a fraction and an exponent from 21 to 308
 * or from -7 to -323. No text is minus zero, and none overflows. A text means the double that it is read as.
 */
import { Result } from "effect"
import { language } from "../Regex.ts"
import * as CharDfa from "./charDfa.ts"

const compile = (pattern: string): CharDfa.CharDfa => Result.getOrThrow(language(pattern, "whole"))

const integerPart = "(?:0|[1-9][0-9]{0,20})"
const mantissa = "[1-9](?:\\.[0-9]{1,20})?"
const bigExponent = "(?:2[1-9]|[3-9][0-9]|[12][0-9][0-9]|30[0-7])"
const smallExponent = "(?:[7-9]|[1-9][0-9]|[12][0-9][0-9]|3[01][0-9]|32[0-3])"
const largest = "1(?:\\.(?:[0-6][0-9]{0,19}|7|7[0-8][0-9]{0,18}|7976931348623157))?e\\+308"
const big = `(?:${mantissa}e\\+${bigExponent}|${largest})`

const once = <A>(make: () => A): () => A => {
  let made: A | undefined
  return () => made ??= make()
}

/** Texts that stand for minus zero. */
const minusZero = once(() => compile("-0(?:\\.0*)?"))

/** All numbers. */
export const all = once(() =>
  CharDfa.subtract(
    compile(`-?(?:${integerPart}(?:\\.[0-9]{1,25})?|${big}|${mantissa}e-${smallExponent})`),
    minusZero()
  )
)

/** All texts of numbers without a fraction: `5.0` is one. */
export const integers = once(() => CharDfa.subtract(compile(`-?(?:${integerPart}(?:\\.0{1,25})?|${big})`), minusZero()))

/** Integers as they are written where nothing but integers may be: without a point. */
export const plainIntegers = once(() => CharDfa.subtract(compile(`-?(?:${integerPart}|${big})`), minusZero()))

const constants = new Map<number, CharDfa.CharDfa>()

/** The texts of one number. */
export const constant = (value: number): CharDfa.CharDfa => {
  const number = value === 0 ? 0 : value
  const known = constants.get(number)
  if (known !== undefined) return known
  const text = JSON.stringify(number).replace(/[.+]/g, "\\$&")
  const zeros = text.includes("e") ? "" : text.includes(".") ? "0*" : "(?:\\.0{1,25})?"
  const made = CharDfa.intersect(compile(text + zeros), all())
  if (constants.size >= 4096) constants.clear()
  constants.set(number, made)
  return made
}

/** What is generated of a language: if all its numbers are integers, without a point. */
export const spelled = (dfa: CharDfa.CharDfa): CharDfa.CharDfa =>
  dfa !== all() && CharDfa.isEmpty(CharDfa.subtract(dfa, integers())) ? CharDfa.intersect(dfa, plainIntegers()) : dfa
