/** The complement of a set of values, where shapes can express it; and a test for emptiness. */
import * as CharDfa from "./charDfa.ts"
import { type Formula, type Formulas, TooComplex } from "./formula.ts"
import * as Normal from "./normal.ts"
import * as Numbers from "./numbers.ts"

/** All values that are not in the set; throws `TooComplex` with the reason if shapes cannot express it. */
export const not = (formulas: Formulas, a: Normal.Normal): Normal.Normal => ({
  null: !a.null,
  true: !a.true,
  false: !a.false,
  number: CharDfa.subtract(Numbers.all(), a.number),
  strings: notStrings(a.strings),
  arrays:
    notAny(formulas, a.arrays, Normal.anyArray(formulas), notArray, (x) => ({ ...Normal.nothing, arrays: x })).arrays,
  objects:
    notAny(formulas, a.objects, Normal.anyObject(formulas), notObject, (x) => ({ ...Normal.nothing, objects: x }))
      .objects
})

/** The intersection of the complements of the shapes. */
const notAny = <S>(
  formulas: Formulas,
  shapes: ReadonlyArray<S>,
  any: S,
  negate: (formulas: Formulas, shape: S) => ReadonlyArray<S>,
  wrap: (shapes: ReadonlyArray<S>) => Normal.Normal
): Normal.Normal =>
  shapes.map((shape) => wrap(negate(formulas, shape))).reduce((a, b) => Normal.and(formulas, a, b), wrap([any]))

/** The language of strings, with their bounds spelled out. */
export const spelledOut = ({ dfa, max, min }: Normal.Strings): CharDfa.CharDfa =>
  min === 0 && max === Infinity ? dfa : CharDfa.intersect(dfa, CharDfa.lengthBetween(min, max))

const notStrings = (strings: ReadonlyArray<Normal.Strings>): ReadonlyArray<Normal.Strings> => {
  const dfa = CharDfa.complement(strings.map(spelledOut).reduce(CharDfa.union, CharDfa.nothing))
  return CharDfa.isEmpty(dfa) ? [] : [{ ...Normal.anyString, dfa }]
}

const notArray = (formulas: Formulas, shape: Normal.ArrayShape): ReadonlyArray<Normal.ArrayShape> => {
  if (shape.unique) throw new TooComplex("the negation of uniqueItems is not supported")
  const any = Normal.anyArray(formulas)
  const found: Array<Normal.ArrayShape> = []
  if (shape.min > 0) found.push({ ...any, max: shape.min - 1 })
  if (shape.max !== Infinity) found.push({ ...any, min: shape.max + 1 })
  shape.prefix.forEach((item, i) => {
    if (item === formulas.true_) return
    const prefix = [...Array.from({ length: i }, () => formulas.true_), formulas.not(item)]
    found.push({ ...any, prefix, min: i + 1 })
  })
  if (shape.rest === formulas.false_) found.push({ ...any, min: shape.prefix.length + 1 })
  else if (shape.rest !== formulas.true_) {
    if (shape.prefix.length > 0) throw new TooComplex("the negation of items after prefixItems is not supported")
    found.push({ ...any, contains: [{ item: formulas.not(shape.rest), min: 1, max: Infinity }] })
  }
  for (const { item, max, min } of shape.contains) {
    if (min > 0) found.push({ ...any, contains: [{ item, min: 0, max: min - 1 }] })
    if (max !== Infinity) found.push({ ...any, contains: [{ item, min: max + 1, max: Infinity }] })
  }
  return found
}

const notObject = (formulas: Formulas, shape: Normal.ObjectShape): ReadonlyArray<Normal.ObjectShape> => {
  const any = Normal.anyObject(formulas)
  const found: Array<Normal.ObjectShape> = []
  if (shape.min > 0) found.push({ ...any, max: shape.min - 1 })
  if (shape.max !== Infinity) found.push({ ...any, min: shape.max + 1 })
  for (const name of shape.required) found.push({ ...any, named: new Map([[name, formulas.false_]]) })
  for (const [name, value] of shape.named) {
    if (value === formulas.true_) continue
    found.push({ ...any, named: new Map([[name, formulas.not(value)]]), required: new Set([name]) })
  }
  if (shape.regions.some(({ value }) => value !== formulas.true_)) {
    throw new TooComplex("the negation of a rule for all other properties of an object is not supported")
  }
  return found
}

/** How deep the search for empty parts goes. */
const maxDepth = 6

/** Whether a set is provably empty. Sound, not complete: false does not mean that it has a value. */
export const isEmpty = (normalOf: (formula: Formula) => Normal.Normal, a: Normal.Normal, depth = 0): boolean => {
  if (a.null || a.true || a.false || !CharDfa.isEmpty(a.number)) return false
  if (a.strings.some(({ dfa, max, min }) => min <= max && CharDfa.distances(dfa)[0]! <= max)) return false
  if (depth >= maxDepth) return a.arrays.length === 0 && a.objects.length === 0
  const empty = (formula: Formula): boolean =>
    formula._tag === "False" || (formula._tag !== "True" && isEmpty(normalOf, normalOf(formula), depth + 1))
  return a.arrays.every(({ min, prefix, rest }) =>
    Array.from({ length: Math.min(min, prefix.length + 1) }, (_, i) => prefix[i] ?? rest).some(empty)
  ) && a.objects.every((shape) => [...shape.required].some((name) => empty(Normal.valueOf(shape, name))))
}
