/**
 * The values that a formula allows, type by type. Scalars are languages of texts, on which all boolean operations are exact.
 * Arrays and objects are lists of shapes, of which one must fit.
 */
import * as CharDfa from "./charDfa.ts"
import { type Formula, type Formulas, TooComplex } from "./formula.ts"
import * as Numbers from "./numbers.ts"

/** Strings of a language whose number of characters is bounded. */
export interface Strings {
  readonly dfa: CharDfa.CharDfa
  readonly min: number
  readonly max: number
}

/** An array: items by position, then all others alike. */
export interface ArrayShape {
  readonly prefix: ReadonlyArray<Formula>
  readonly rest: Formula
  readonly min: number
  readonly max: number
  /** Conditions on how many items are of a kind. */
  readonly contains: ReadonlyArray<Contains>
  /** Whether no two items may be equal. */
  readonly unique: boolean
}

/** How many items of an array must have a property. */
export interface Contains {
  readonly item: Formula
  readonly min: number
  readonly max: number
}

/** An object: named properties in the order in which they are written, then others by language of their names. */
export interface ObjectShape {
  readonly named: ReadonlyMap<string, Formula>
  readonly required: ReadonlySet<string>
  /** Languages of names that cut all names into parts; a name in `named` does not count here. */
  readonly regions: ReadonlyArray<Region>
  readonly min: number
  readonly max: number
}

/** Names, and what their values must be. */
export interface Region {
  readonly names: CharDfa.CharDfa
  readonly value: Formula
}

/** Values of all types. */
export interface Normal {
  readonly null: boolean
  readonly true: boolean
  readonly false: boolean
  readonly number: CharDfa.CharDfa
  readonly strings: ReadonlyArray<Strings>
  readonly arrays: ReadonlyArray<ArrayShape>
  readonly objects: ReadonlyArray<ObjectShape>
}

/** No value. */
export const nothing: Normal = {
  null: false,
  true: false,
  false: false,
  number: CharDfa.nothing,
  strings: [],
  arrays: [],
  objects: []
}

/** All strings. */
export const anyString: Strings = { dfa: CharDfa.anything, min: 0, max: Infinity }

/** All arrays. */
export const anyArray = (formulas: Formulas): ArrayShape => ({
  prefix: [],
  rest: formulas.true_,
  min: 0,
  max: Infinity,
  contains: [],
  unique: false
})

/** All objects. */
export const anyObject = (formulas: Formulas): ObjectShape => ({
  named: new Map(),
  required: new Set(),
  regions: [{ names: CharDfa.anything, value: formulas.true_ }],
  min: 0,
  max: Infinity
})

/** All values. */
export const anything = (formulas: Formulas): Normal => ({
  null: true,
  true: true,
  false: true,
  number: Numbers.all(),
  strings: [anyString],
  arrays: [anyArray(formulas)],
  objects: [anyObject(formulas)]
})

/** More alternatives of one type than this are refused. */
const maxShapes = 256

const limited = <A>(shapes: ReadonlyArray<A>): ReadonlyArray<A> => {
  if (shapes.length > maxShapes) throw new TooComplex(`has more than ${maxShapes} alternatives of one type`)
  return shapes
}

/** Values in both. */
export const and = (formulas: Formulas, a: Normal, b: Normal): Normal => ({
  null: a.null && b.null,
  true: a.true && b.true,
  false: a.false && b.false,
  number: CharDfa.intersect(a.number, b.number),
  strings: limited(a.strings.flatMap((x) => b.strings.flatMap((y) => andStrings(x, y)))),
  arrays: limited(a.arrays.flatMap((x) => b.arrays.flatMap((y) => andArrays(formulas, x, y)))),
  objects: limited(a.objects.flatMap((x) => b.objects.flatMap((y) => andObjects(formulas, x, y))))
})

/** Values in either. */
export const or = (a: Normal, b: Normal): Normal => ({
  null: a.null || b.null,
  true: a.true || b.true,
  false: a.false || b.false,
  number: CharDfa.union(a.number, b.number),
  strings: limited(joinStrings([...a.strings, ...b.strings])),
  arrays: limited([...a.arrays, ...b.arrays]),
  objects: limited([...a.objects, ...b.objects])
})

/** The union of languages with more states than this is not made: they stay alternatives. */
const maxJoined = 1024

/** Languages without counted bounds are joined to one, unless they are large. */
const joinStrings = (all: ReadonlyArray<Strings>): ReadonlyArray<Strings> => {
  const isFree = ({ dfa, max, min }: Strings): boolean =>
    min === 0 && max === Infinity && dfa.accept.length <= maxJoined
  const free = all.filter(isFree)
  if (free.length === 0) return all
  const dfa = free.map((strings) => strings.dfa).reduce(CharDfa.union)
  if (CharDfa.isAll(dfa)) return [anyString]
  return [{ ...anyString, dfa }, ...all.filter((strings) => !isFree(strings))]
}

/** Strings in both. */
export const andStrings = (a: Strings, b: Strings): ReadonlyArray<Strings> => {
  const [min, max] = [Math.max(a.min, b.min), Math.min(a.max, b.max)]
  const dfa = CharDfa.intersect(a.dfa, b.dfa)
  return min > max || CharDfa.isEmpty(dfa) ? [] : [{ dfa, min, max }]
}

const andArrays = (formulas: Formulas, a: ArrayShape, b: ArrayShape): ReadonlyArray<ArrayShape> => {
  const [min, max] = [Math.max(a.min, b.min), Math.min(a.max, b.max)]
  if (min > max) return []
  const itemOf = (shape: ArrayShape, i: number): Formula => shape.prefix[i] ?? shape.rest
  const length = Math.max(a.prefix.length, b.prefix.length)
  return [{
    prefix: Array.from({ length }, (_, i) => formulas.and([itemOf(a, i), itemOf(b, i)])),
    rest: formulas.and([a.rest, b.rest]),
    min,
    max,
    contains: [...a.contains, ...b.contains],
    unique: a.unique || b.unique
  }]
}

/** What the value of a property must be. */
export const valueOf = (shape: ObjectShape, name: string): Formula =>
  shape.named.get(name) ?? shape.regions.find(({ names }) => CharDfa.accepts(names, name))!.value

const andObjects = (formulas: Formulas, a: ObjectShape, b: ObjectShape): ReadonlyArray<ObjectShape> => {
  const [min, max] = [Math.max(a.min, b.min), Math.min(a.max, b.max)]
  if (min > max) return []
  const names = new Set([...a.named.keys(), ...b.named.keys()])
  const named = new Map([...names].map((name) => [name, formulas.and([valueOf(a, name), valueOf(b, name)])]))
  const required = new Set([...a.required, ...b.required])
  if ([...required].some((name) => named.get(name) === formulas.false_)) return []
  const regions = a.regions.flatMap((x) =>
    b.regions.flatMap((y): ReadonlyArray<Region> => {
      const shared = CharDfa.intersect(x.names, y.names)
      return CharDfa.isEmpty(shared) ? [] : [{ names: shared, value: formulas.and([x.value, y.value]) }]
    })
  )
  return [{ named, required, regions: mergeRegions(regions), min, max }]
}

/** Joins regions with the same values. */
export const mergeRegions = (regions: ReadonlyArray<Region>): ReadonlyArray<Region> => {
  const byValue = new Map<Formula, CharDfa.CharDfa>()
  for (const { names, value } of regions) {
    const other = byValue.get(value)
    byValue.set(value, other === undefined ? names : CharDfa.union(other, names))
  }
  return limited([...byValue].map(([value, names]) => ({ names, value })))
}
