/**
 * Regular languages over Unicode scalar values, as minimal complete automata. Transitions are by class of characters, so
 * that an automaton with ten classes stays small whatever its alphabet. The start is state 0. Two automata of the same
 * language are equal in all fields: `key` tells languages apart.
 */
import { all, type CodePoints, ofText } from "./codePoints.ts"

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

/** Thrown inside of a compilation that has taken its steps; `withSteps` says how many. */
export class TooManySteps {
  readonly limit: number
  constructor(limit: number) {
    this.limit = limit
  }
}

/** Transitions that may still be looked at. Counted, not timed: a schema is refused on all machines or on none. */
let steps = { limit: Infinity, taken: 0 }

/** Runs something that may look at so many transitions before it is given up. */
export const withSteps = <A>(limit: number, run: () => A): A => {
  const before = steps
  steps = { limit, taken: 0 }
  try {
    return run()
  } finally {
    steps = before
  }
}

const take = (count: number): void => {
  steps.taken += count
  if (steps.taken > steps.limit) throw new TooManySteps(steps.limit)
}

/** The surrogates' class: no text has them, so transitions by it do not count. */
const isSurrogate = (codePoint: number): boolean => codePoint >= 0xd800 && codePoint <= 0xdfff

/** The intervals that a number of sets cut the alphabet into, and for each interval the sets that have it. */
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

/** Builds an automaton by exploring from a start: what each state is called, where it goes, whether it accepts. */
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

/** The number of a block for each state: states of a block accept the same texts. */
const equalStates = (dfa: CharDfa): Int32Array => {
  const distance = distances(dfa)
  const order = targetsFirst(dfa, distance)
  return order === undefined ? refined(dfa, distance) : inOneRound(dfa, distance, order)
}

/** All states from which a text is accepted, each behind those that it leads to; undefined if there is a cycle. */
const targetsFirst = (dfa: CharDfa, distance: Float64Array): ReadonlyArray<number> | undefined => {
  const { accept, next, width } = dfa
  const surrogate = classOf(dfa, 0xd800)
  const order: Array<number> = []
  // for each state 0 if it was not seen, 1 + the class that comes next, or -1 if it is in the order
  const at = new Int32Array(accept.length)
  const open = distance[0] === Infinity ? [] : [0]
  if (open.length > 0) at[0] = 1
  while (open.length > 0) {
    const state = open.at(-1)!
    const c = at[state]! - 1
    if (c === width) {
      at[state] = -1
      order.push(state)
      open.pop()
      continue
    }
    at[state] = c + 2
    const target = next[state * width + c]!
    if (c === surrogate || distance[target] === Infinity || at[target]! < 0) continue
    if (at[target]! > 0) return undefined
    at[target] = 1
    open.push(target)
  }
  return order
}

/** Numbers what follows the states of an automaton: a state's signature is folded class by class. */
const signatures = (dfa: CharDfa, seeds: number) => {
  const { next, width } = dfa
  const surrogate = classOf(dfa, 0xd800)
  const base = dfa.accept.length + 2
  // each pair of a prefix's number and a block gets a number of its own
  const pairs = new Map<number, number>()
  return (state: number, seed: number, block: Int32Array): number => {
    let signature = seed
    for (let c = 0; c < width; c++) {
      if (c === surrogate) continue
      const pair = signature * base + block[next[state * width + c]!]! + 1
      const known = pairs.get(pair)
      signature = known ?? seeds + pairs.size
      if (known === undefined) pairs.set(pair, signature)
    }
    return signature
  }
}

/** The blocks of a finite language: what a state leads to is numbered before it. States that accept nothing are block 0. */
const inOneRound = (dfa: CharDfa, distance: Float64Array, order: ReadonlyArray<number>): Int32Array => {
  const block = new Int32Array(distance.length)
  const signatureOf = signatures(dfa, 2)
  const numbers = new Map<number, number>()
  take(order.length * dfa.width)
  for (const state of order) {
    const signature = signatureOf(state, dfa.accept[state]!, block)
    const known = numbers.get(signature) ?? numbers.size + 1
    numbers.set(signature, known)
    block[state] = known
  }
  return block
}

/** The blocks of any language, refined round by round. */
const refined = (dfa: CharDfa, distance: Float64Array): Int32Array => {
  const count = dfa.accept.length
  // equal states are equally far from acceptance: beginning with that saves a round for each step of a chain
  let block = Int32Array.from(distance, (steps) => steps === Infinity ? -1 : steps)
  for (let blocks = 0;;) {
    const signatureOf = signatures(dfa, count + 2)
    const numbers = new Map<number, number>()
    const finer = new Int32Array(count)
    take(count * dfa.width)
    for (let state = 0; state < count; state++) {
      const signature = signatureOf(state, block[state]! + 1, block)
      const known = numbers.get(signature) ?? numbers.size
      numbers.set(signature, known)
      finer[state] = known
    }
    block = finer
    if (numbers.size === blocks) return block
    blocks = numbers.size
  }
}

/** One state for each block, numbered breadth first by the smallest character, with as few classes as can be. */
const canonical = (dfa: CharDfa, block: Int32Array): CharDfa => {
  const { accept, next, width } = dfa
  const surrogate = dfa.classes[dfa.starts.indexOf(0xd800)]!
  const order: Array<number> = []
  const numberOf = new Int32Array(accept.length).fill(-1)
  const number = (state: number): number => {
    const known = numberOf[block[state]!]!
    if (known >= 0) return known
    numberOf[block[state]!] = order.length
    order.push(state)
    return order.length - 1
  }
  number(0)
  const intervals = dfa.starts.length
  const rows: Array<Int32Array> = []
  for (let i = 0; i < order.length; i++) {
    const row = new Int32Array(intervals)
    for (let j = 0; j < intervals; j++) {
      const c = dfa.classes[j]!
      row[j] = c === surrogate ? -1 : number(next[order[i]! * width + c]!)
    }
    rows.push(row)
  }
  // intervals with equal columns are one class; a column is given by its first interval
  const columns: Array<number> = []
  const starts: Array<number> = []
  const classes: Array<number> = []
  for (let j = 0; j < intervals; j++) {
    const known = columns.findIndex((first) => rows.every((row) => row[first] === row[j]))
    const column = known >= 0 ? known : columns.push(j) - 1
    if (classes.at(-1) === column) continue
    starts.push(dfa.starts[j]!)
    classes.push(column)
  }
  const table = new Int32Array(order.length * columns.length)
  rows.forEach((row, state) => {
    for (let c = 0; c < columns.length; c++) table[state * columns.length + c] = Math.max(0, row[columns[c]!]!)
  })
  return {
    starts,
    classes,
    width: columns.length,
    next: table,
    accept: Uint8Array.from(order, (state) => accept[state]!)
  }
}

/** The language of the texts for which `keep` says so, given which of the two languages has them. */
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

/** Results by operands: languages are values that live long, and the same ones are combined in every schema. */
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

/** The language of these words: the same words give the same object, so that what is made of it is found again. */
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

const classOf = (dfa: CharDfa, codePoint: number): number => {
  let at = 0
  while (at + 1 < dfa.starts.length && dfa.starts[at + 1]! <= codePoint) at++
  return dfa.classes[at]!
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
