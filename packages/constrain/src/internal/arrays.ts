/** Arrays as recursive transition networks (nets). */
import * as CharDfa from "./charDfa.ts"
import { type Formula, type Formulas, TooComplex } from "./formula.ts"
import type { ArrayShape, Contains, Normal } from "./normal.ts"
import * as Numbers from "./numbers.ts"
import { addState, callEdge, emptyEdge, literal, makeNet, type Net, utf8 } from "./rule.ts"

/** The context of building nets of arrays. */
export interface Parts {
  readonly formulas: Formulas
  readonly ruleOf: (formula: Formula) => Net
  readonly normalOf: (formula: Formula) => Normal
}

/** More states than this of one array or object are refused. */
export const maxNetStates = 8192

/** The texts of an array. */
export const arrayNet = (parts: Parts, shape: ArrayShape): Net => {
  const isUnique = shape.unique && shape.max > 1
  if (isUnique) return trackedNet(parts, shape, uniqueValues(parts, shape))
  return shape.contains.length > 0 ? trackedNet(parts, shape, []) : countedNet(parts, shape)
}

/** Items by position, then all others by a counter. */
const countedNet = ({ formulas, ruleOf }: Parts, { max, min, prefix, rest }: ArrayShape): Net => {
  const net = makeNet("array")
  const end = addState(net)
  net.states[end]!.accept = true
  const close = (from: number): void => void literal(net, from, utf8("]"), end)
  let at = literal(net, 0, utf8("["))
  const items = Math.min(prefix.length, max)
  for (let i = 0; i < items; i++) {
    if (i >= min) close(at)
    const start = i === 0 ? at : literal(net, at, utf8(","))
    at = addState(net)
    callEdge(net, start, ruleOf(prefix[i]!), at)
  }
  if (items >= min) close(at)
  if (items >= max || rest === formulas.false_) return net
  // the counter is of the others only, of which there is at least one here
  net.min = Math.max(1, min - items)
  net.max = max - items
  const [entered, item, after, more, leaving] = Array.from({ length: 5 }, () => addState(net)) as [
    number,
    number,
    number,
    number,
    number
  ]
  emptyEdge(net, at, entered, "enter")
  if (items === 0) emptyEdge(net, entered, item)
  else literal(net, entered, utf8(","), item)
  callEdge(net, item, ruleOf(rest), after)
  emptyEdge(net, after, more, "enter")
  literal(net, more, utf8(","), item)
  emptyEdge(net, after, leaving, "leave")
  close(leaving)
  return net
}

/** A kind of item: what it is, which conditions it counts for, and which value it is if values may not repeat. */
interface Kind {
  readonly item: Formula
  readonly counts: ReadonlyArray<boolean>
  readonly value: number | undefined
}

/** A net whose states track the length, how often each condition holds, and which values have occurred. */
const trackedNet = (parts: Parts, shape: ArrayShape, values: ReadonlyArray<Formula>): Net => {
  const { formulas, ruleOf } = parts
  const { contains, prefix, rest } = shape
  const max = values.length > 0 ? Math.min(shape.max, values.length) : shape.unique ? 0 : shape.max
  const net = makeNet("array")
  const end = addState(net)
  net.states[end]!.accept = true
  const lastLength = max === Infinity ? Math.max(1, shape.min, prefix.length) : max
  const lastCount = ({ max, min }: Contains): number => max === Infinity ? min : max
  const known = new Map<string, number>()
  const queue: Array<readonly [at: number, length: number, counts: ReadonlyArray<number>, used: number]> = []
  const stateOf = (length: number, counts: ReadonlyArray<number>, used: number): number => {
    const key = `${length};${counts.join()};${used}`
    const found = known.get(key)
    if (found !== undefined) return found
    const made = addState(net)
    if (known.size >= maxNetStates) throw new TooComplex(`an array would need more than ${maxNetStates} states`)
    known.set(key, made)
    queue.push([made, length, counts, used])
    return made
  }
  literal(net, 0, utf8("["), stateOf(0, contains.map(() => 0), 0))
  const kinds = new Map<Formula, ReadonlyArray<Kind>>()
  for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
    const [at, length, counts, used] = next
    if (length >= shape.min && contains.every(({ min }, i) => counts[i]! >= min)) literal(net, at, utf8("]"), end)
    if (length >= max) continue
    const item = prefix[length] ?? rest
    if (item === formulas.false_) continue
    const start = length === 0 ? at : literal(net, at, utf8(","))
    const found = kinds.get(item) ?? kindsOf(formulas, item, contains, values)
    kinds.set(item, found)
    for (const kind of found) {
      if (kind.value !== undefined && (used >>> kind.value) & 1) continue
      if (contains.some(({ max }, i) => kind.counts[i] === true && counts[i]! >= max)) continue
      const after = counts.map((count, i) => Math.min(lastCount(contains[i]!), count + Number(kind.counts[i])))
      const length_ = Math.min(length + 1, lastLength)
      const usedAfter = kind.value === undefined ? used : used | (1 << kind.value)
      callEdge(net, start, ruleOf(kind.item), stateOf(length_, after, usedAfter))
    }
  }
  return net
}

/**
 * Nondeterminism: an item that is not counted for a condition may still meet it, unless there is a maximum. Undercounting is harmless
 * otherwise, since another alternative counts it.
 */
const kindsOf = (
  formulas: Formulas,
  item: Formula,
  contains: ReadonlyArray<Contains>,
  values: ReadonlyArray<Formula>
): ReadonlyArray<Kind> => {
  let found: ReadonlyArray<Kind> = values.length === 0
    ? [{ item, counts: [], value: undefined }]
    : values.map((value, i) => ({ item: formulas.and([item, value]), counts: [], value: i }))
  for (const { item: condition, max } of contains) {
    found = found.flatMap((kind) => [
      { ...kind, item: formulas.and([kind.item, condition]), counts: [...kind.counts, true] },
      {
        ...kind,
        item: max === Infinity ? kind.item : formulas.and([kind.item, formulas.not(condition)]),
        counts: [...kind.counts, false]
      }
    ])
  }
  return found.filter((kind) => kind.item !== formulas.false_)
}

/** Arrays without repetition are tracked by the set of their values so far: this many at most. */
const maxUnique = 10

/** All values that items can have, if they are few and scalar. */
const uniqueValues = ({ formulas, normalOf }: Parts, { prefix, rest }: ArrayShape): ReadonlyArray<Formula> => {
  const texts = new Set<string>()
  const refuse = (): never => {
    throw new TooComplex(`uniqueItems needs items of at most ${maxUnique} different scalar values`)
  }
  for (const item of [...prefix, rest]) {
    const { arrays, false: no, null: null_, number, objects, strings, true: yes } = normalOf(item)
    if (arrays.length > 0 || objects.length > 0 || strings.some(({ max }) => max !== Infinity)) refuse()
    if (null_) texts.add("null")
    if (yes) texts.add("true")
    if (no) texts.add("false")
    for (const { dfa } of strings) {
      for (const word of CharDfa.finiteWords(dfa, maxUnique) ?? refuse()) texts.add(JSON.stringify(word))
    }
    for (const word of CharDfa.finiteWords(Numbers.spelled(number), 500) ?? refuse()) {
      texts.add(JSON.stringify(Number(word)))
    }
    if (texts.size > maxUnique) refuse()
  }
  return [...texts].map((text) => formulas.schema({ value: formulas.constant(JSON.parse(text)), path: "#", base: "" }))
}
