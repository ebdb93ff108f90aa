/**
 * Regular languages over Unicode scalar values, as minimal complete DFAs. Transitions are by character class, so an automaton with ten
 * classes stays small whatever its alphabet. The start is state 0. Two automata of the same
 * language are equal in all fields: `key` tells languages apart.
 */
import { all, type CodePoints, ofText } from "./codePoints.ts"
import { distances } from "./distances.ts"
import { canonical, equalStates } from "./minimal.ts"
import { take } from "./steps.ts"

export { distances } from "./distances.ts"
export { TooManySteps, withSteps } from "./steps.ts"

/** A minimal automaton. */
export interface CharDfa {
  /** The intervals of the alphabet: `classes[i]` is the class of the characters from `starts[i]` to the next start. */
  readonly starts: ReadonlyArray<number>
  readonly classes: ReadonlyArray<number>
  /** How many classes there are. */
  readonly width: number
  /** `next[state * width + class]`. */
  readonly next: Int32Array
  readonly accept: Uint8Array
}

/** Thrown inside of a compilation when a language needs more states than `maxStates`; its entry points catch it. */
export class TooManyStates {
  readonly limit: number
  constructor(limit: number) {
    this.limit = limit
  }
}

/** More states than this are refused. */
export const maxStates = 8192

/** The surrogates' class: no text has them, so transitions by it do not count. */
const isSurrogate = (codePoint: number): boolean => codePoint >= 0xd800 && codePoint <= 0xdfff

/** The coarsest partition of the alphabet into intervals that some sets respect, and for each interval the sets that have it. */
export const partition = (
  sets: ReadonlyArray<CodePoints>
): {
  readonly starts: ReadonlyArray<number>
  readonly classes: ReadonlyArray<number>
  readonly members: ReadonlyArray<ReadonlyArray<number>>
} => {
  const cuts = new Map<number, Array<number>>()
  const cut = (at: number): Array<number> => {
    const found = cuts.get(at) ?? []
    cuts.set(at, found)
    return found
  }
  for (const at of [0, 0xd800, 0xe000]) cut(at)
  sets.forEach((set, index) => {
    for (const [low, high] of set) {
      cut(low).push(index)
      if (high < 0x10ffff) cut(high + 1).push(~index)
    }
  })
  const starts = [...cuts.keys()].sort((a, b) => a - b)
  const open = new Set<number>()
  const byKey = new Map<string, number>()
  const members: Array<ReadonlyArray<number>> = []
  const classes = starts.map((start) => {
    const changes = cuts.get(start)!
    for (const change of changes) if (change < 0) open.delete(~change)
    for (const change of changes) if (change >= 0) open.add(change)
    const inside = isSurrogate(start) ? [] : [...open].sort((a, b) => a - b)
    const key = isSurrogate(start) ? "surrogate" : inside.join()
    const known = byKey.get(key)
    if (known !== undefined) return known
    byKey.set(key, members.length)
    members.push(inside)
    return members.length - 1
  })
  return { starts, classes, members }
}

/** Builds a minimal DFA from an implicit one by breadth-first search: a key, transitions and acceptance for each state. */
export const explore = <S>(options: {
  readonly starts: ReadonlyArray<number>
  readonly classes: ReadonlyArray<number>
  readonly width: number
  readonly start: S
  readonly keyOf: (state: S) => string | number
  readonly step: (state: S, charClass: number) => S
  readonly accepts: (state: S) => boolean
  /** The most states; default: `maxStates`. */
  readonly limit?: number
}): CharDfa => {
  const { accepts, classes, keyOf, limit = maxStates, start, starts, step, width } = options
  const numbers = new Map<string | number, number>([[keyOf(start), 0]])
  const states = [start]
  const next: Array<number> = []
  const surrogate = classes[starts.indexOf(0xd800)]!
  for (let i = 0; i < states.length; i++) {
    take(width)
    for (let c = 0; c < width; c++) {
      const target = c === surrogate ? states[i]! : step(states[i]!, c)
      const key = keyOf(target)
      let number = numbers.get(key)
      if (number === undefined) {
        number = states.length
        if (number >= limit) throw new TooManyStates(limit)
        numbers.set(key, number)
        states.push(target)
      }
      next.push(number)
    }
  }
  const dfa = {
    starts,
    classes,
    width,
    next: Int32Array.from(next),
    accept: Uint8Array.from(states, (state) => Number(accepts(state)))
  }
  return canonical(dfa, equalStates(dfa))
}

/**
 * Builds a large automaton from the edges of its states, each with the characters that it is for; all others fail. No two
 * states may accept the same texts, and from each of them some text must be accepted.
 */
export const fromEdges = <S>(options: {
  /** All characters of edges. */
  readonly alphabet: string
  readonly start: S
  readonly keyOf: (state: S) => string
  readonly edgesOf: (state: S) => ReadonlyArray<readonly [chars: string, target: S]>
  readonly accepts: (state: S) => boolean
}): CharDfa => {
  const { accepts, alphabet, edgesOf, keyOf, start } = options
  const { classes, members, starts } = partition(Array.from(alphabet, ofText))
  const classOf = new Map(members.map((inside, c) => [alphabet[inside[0] ?? -1], c]))
  const width = members.length
  const numbers = new Map([[keyOf(start), 0]])
  const states = [start]
  const rows: Array<Int32Array> = []
  for (const state of states) {
    const row = new Int32Array(width).fill(-1)
    for (const [chars, target] of edgesOf(state)) {
      const key = keyOf(target)
      const number = numbers.get(key) ?? states.push(target) - 1
      numbers.set(key, number)
      for (const char of chars) row[classOf.get(char)!] = number
    }
    rows.push(row)
  }
  const dead = states.length
  const next = new Int32Array((dead + 1) * width).fill(dead)
  rows.forEach((row, state) => row.forEach((to, c) => to >= 0 && (next[state * width + c] = to)))
  const accept = new Uint8Array(dead + 1)
  states.forEach((state, i) => {
    accept[i] = Number(accepts(state))
  })
  return canonical({ starts, classes, width, next, accept }, Int32Array.from(accept.keys()))
}

/** The product construction: texts for which `keep` holds of membership in the two languages. */
export const combine = (a: CharDfa, b: CharDfa, keep: (inA: boolean, inB: boolean) => boolean): CharDfa => {
  const starts = [...new Set([...a.starts, ...b.starts])].sort((x, y) => x - y)
  const pairs = new Map<number, number>()
  const list: Array<readonly [number, number]> = []
  let [i, j] = [0, 0]
  const classes = starts.map((start) => {
    while (i + 1 < a.starts.length && a.starts[i + 1]! <= start) i++
    while (j + 1 < b.starts.length && b.starts[j + 1]! <= start) j++
    const key = a.classes[i]! * b.width + b.classes[j]!
    const known = pairs.get(key)
    if (known !== undefined) return known
    pairs.set(key, list.length)
    list.push([a.classes[i]!, b.classes[j]!])
    return list.length - 1
  })
  const size = b.accept.length
  return explore<number>({
    starts,
    classes,
    width: list.length,
    start: 0,
    keyOf: (pair) => pair,
    step: (pair, c) => {
      const [x, y] = list[c]!
      return a.next[Math.floor(pair / size) * a.width + x]! * size + b.next[(pair % size) * b.width + y]!
    },
    accepts: (pair) => keep(a.accept[Math.floor(pair / size)] === 1, b.accept[pair % size] === 1),
    limit: Math.max(maxStates, 2 * (a.accept.length + size))
  })
}

/** Memoises an operation by its operands: the same languages are combined in every schema. */
const remembered = (make: (a: CharDfa, b: CharDfa) => CharDfa): (a: CharDfa, b: CharDfa) => CharDfa => {
  const known = new WeakMap<CharDfa, WeakMap<CharDfa, CharDfa>>()
  return (a, b) => {
    const byOther = known.get(a) ?? new WeakMap<CharDfa, CharDfa>()
    known.set(a, byOther)
    const found = byOther.get(b) ?? make(a, b)
    byOther.set(b, found)
    return found
  }
}

const both = remembered((a, b) => combine(a, b, (x, y) => x && y))
const either = remembered((a, b) => combine(a, b, (x, y) => x || y))
const difference = remembered((a, b) => combine(a, b, (x, y) => x && !y))

/** Texts in both languages. */
export const intersect = (a: CharDfa, b: CharDfa): CharDfa => a === b || isAll(b) ? a : isAll(a) ? b : both(a, b)

/** Texts in either language. */
export const union = (a: CharDfa, b: CharDfa): CharDfa => a === b || isEmpty(b) ? a : isEmpty(a) ? b : either(a, b)

/** Texts of `a` that `b` does not have. */
export const subtract = (a: CharDfa, b: CharDfa): CharDfa =>
  a === b || isAll(b) ? nothing : isEmpty(b) || isEmpty(a) ? a : difference(a, b)

/** Texts that are not in the language. */
export const complement = (a: CharDfa): CharDfa => ({ ...a, accept: a.accept.map((accepts) => 1 - accepts) })

/** Whether no text is in the language. */
export const isEmpty = (dfa: CharDfa): boolean => dfa.accept.length === 1 && dfa.accept[0] === 0

/** Whether every text is in the language. */
export const isAll = (dfa: CharDfa): boolean => dfa.accept.length === 1 && dfa.accept[0] === 1

/** Tells languages apart. */
export const key = (dfa: CharDfa): string =>
  `${dfa.starts.join()};${dfa.classes.join()};${dfa.next.join()};${dfa.accept.join()}`

const knownWords = new Map<string, CharDfa>()
const maxKnownWords = 512

/** The language of these words, interned: the same words give the same object, so memoised results are found again. */
export const words = (list: Iterable<string>): CharDfa => {
  const sorted = [...new Set(list)].sort()
  const key = JSON.stringify(sorted)
  const made = knownWords.get(key) ?? wordsOf(sorted)
  if (knownWords.size >= maxKnownWords) knownWords.clear()
  knownWords.set(key, made)
  return made
}

const wordsOf = (list: ReadonlyArray<string>): CharDfa => {
  interface Node {
    readonly id: number
    readonly children: Map<number, Node>
    isWord: boolean
  }
  let count = 0
  const node = (): Node => ({ id: count++, children: new Map(), isWord: false })
  const root = node()
  const dead = node()
  const letters = new Set<number>()
  for (const word of list) {
    let at = root
    for (const char of word) {
      const codePoint = char.codePointAt(0)!
      letters.add(codePoint)
      const child = at.children.get(codePoint) ?? node()
      at.children.set(codePoint, child)
      at = child
    }
    at.isWord = true
  }
  const alphabet = [...letters].filter((letter) => !isSurrogate(letter))
  const { classes, members, starts } = partition(alphabet.map((letter) => [[letter, letter]] as const))
  const letterOf = members.map((inside) => inside.length === 0 ? -1 : alphabet[inside[0]!]!)
  return explore({
    starts,
    classes,
    width: members.length,
    start: root,
    keyOf: (state) => state.id,
    step: (state, c) => state.children.get(letterOf[c]!) ?? dead,
    accepts: (state) => state.isWord
  })
}

/** The texts of `min` to `max` characters. */
export const lengthBetween = (min: number, max: number): CharDfa => {
  const { classes, starts } = partition([all])
  const last = max === Infinity ? min : max + 1
  if (last >= maxStates) throw new TooManyStates(maxStates)
  return explore({
    starts,
    classes,
    width: 2,
    start: 0,
    keyOf: (length) => length,
    step: (length) => Math.min(length + 1, last),
    accepts: (length) => length >= min && length <= max
  })
}

/** The state after one more character. */
export const step = (dfa: CharDfa, state: number, codePoint: number): number => {
  let [low, high] = [0, dfa.starts.length - 1]
  while (low < high) {
    const middle = (low + high + 1) >> 1
    if (dfa.starts[middle]! <= codePoint) low = middle
    else high = middle - 1
  }
  return dfa.next[state * dfa.width + dfa.classes[low]!]!
}

/** Whether the language has the text. A text with a lone surrogate is in no language. */
export const accepts = (dfa: CharDfa, text: string): boolean => {
  let state = 0
  for (const char of text) {
    const codePoint = char.codePointAt(0)!
    if (isSurrogate(codePoint)) return false
    state = step(dfa, state, codePoint)
  }
  return dfa.accept[state] === 1
}

/** The texts of a finite language, shortest first; undefined if there are more than `limit` or endlessly many. */
export const finiteWords = (dfa: CharDfa, limit: number): ReadonlyArray<string> | undefined => {
  const distance = distances(dfa)
  const found: Array<string> = []
  let level: Array<readonly [state: number, text: string]> = distance[0] === Infinity ? [] : [[0, ""]]
  for (let length = 0; level.length > 0; length++) {
    if (length > dfa.accept.length) return undefined
    const following: Array<readonly [number, string]> = []
    for (const [state, text] of level) {
      if (dfa.accept[state] === 1) found.push(text)
      for (let i = 0; i < dfa.starts.length; i++) {
        const target = dfa.next[state * dfa.width + dfa.classes[i]!]!
        const low = dfa.starts[i]!
        if (isSurrogate(low) || distance[target] === Infinity) continue
        const high = i + 1 < dfa.starts.length ? dfa.starts[i + 1]! - 1 : 0x10ffff
        if (high - low + 1 + following.length + found.length > limit) return undefined
        for (let c = low; c <= high; c++) following.push([target, text + String.fromCodePoint(c)])
      }
    }
    if (found.length > limit) return undefined
    level = following
  }
  return found
}

const trivial = (accepts: 0 | 1): CharDfa => {
  const { classes, starts } = partition([all])
  return explore({
    starts,
    classes,
    width: 2,
    start: 0,
    keyOf: (state) => state,
    step: (state) => state,
    accepts: () => accepts === 1
  })
}

/** Every text. */
export const anything: CharDfa = trivial(1)

/** No text. */
export const nothing: CharDfa = trivial(0)
