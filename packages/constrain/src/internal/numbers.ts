/**
 * Languages of JSON numbers. The texts are those that JSON.stringify can write, and fractions with more digits or trailing
 * zeros: an integer of at most 21 digits, a fraction of at most 25, or one digit, a fraction and an exponent from 21 to 308
 * or from -7 to -323. No text is minus zero, and none overflows. A text means the double that it is read as.
 */
import { Result } from "effect"
import { language } from "../Regex.ts"
import * as CharDfa from "./charDfa.ts"
import * as CodePoints from "./codePoints.ts"

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

/** Whether zeros may follow: after a point, or after the digits of a fraction. */
type Zeros = "none" | "point" | "digits"

/** The texts of some numbers: as JSON.stringify writes them, and with zeros at the end of the fraction. */
export const constants = (values: ReadonlyArray<number>): CharDfa.CharDfa => {
  const texts = values.map((value) => JSON.stringify(value === 0 ? 0 : value))
  const [scientific, plain] = [texts.filter((text) => text.includes("e")), texts.filter((text) => !text.includes("e"))]
  const fractions = CharDfa.words(plain.filter((text) => text.includes(".")))
  const whole = CharDfa.words(plain.filter((text) => !text.includes(".")))
  const { classes, members, starts } = CharDfa.partition([..."0123456789.-"].map(CodePoints.ofText))
  const extended = CharDfa.explore<readonly [fraction: number, whole: number, zeros: Zeros]>({
    starts,
    classes,
    width: members.length,
    start: [0, 0, "none"],
    keyOf: (state) => state.join(),
    step: ([fraction, integer, zeros], c) => {
      const index = members[c]![0]
      const char = index === undefined ? "x" : "0123456789.-"[index]!
      const code = char.codePointAt(0)!
      const isZero = char === "0" && (zeros !== "none" || fractions.accept[fraction] === 1)
      const isPoint = char === "." && whole.accept[integer] === 1
      const next = isZero ? "digits" : isPoint ? "point" : "none"
      return [CharDfa.step(fractions, fraction, code), CharDfa.step(whole, integer, code), next]
    },
    accepts: ([fraction, integer, zeros]) =>
      fractions.accept[fraction] === 1 || whole.accept[integer] === 1 || zeros === "digits"
  })
  return CharDfa.intersect(CharDfa.union(extended, CharDfa.words(scientific)), all())
}

/** What is generated of a language: if all its numbers are integers, without a point. */
export const spelled = (dfa: CharDfa.CharDfa): CharDfa.CharDfa =>
  dfa !== all() && CharDfa.isEmpty(CharDfa.subtract(dfa, integers())) ? CharDfa.intersect(dfa, plainIntegers()) : dfa
