/** DFA minimisation: equivalent states are merged, states and classes are numbered canonically. */
import type { CharDfa } from "./charDfa.ts"
import { classOf, distances } from "./distances.ts"
import { take } from "./steps.ts"

/** The partition into equivalent states: a block number for each state. */
export const equalStates = (dfa: CharDfa): Int32Array => {
  const distance = distances(dfa)
  const order = targetsFirst(dfa, distance)
  return order === undefined ? refined(dfa, distance) : inOneRound(dfa, distance, order)
}

/** The productive states in reverse topological order; undefined if there is a cycle. */
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

/** Hash-conses the rows of an automaton: a state's signature is folded class by class. */
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

/** The blocks of a finite language in one pass, targets first. Unproductive states are block 0. */
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

/** The blocks of any language, by Moore's partition refinement. */
const refined = (dfa: CharDfa, distance: Float64Array): Int32Array => {
  const count = dfa.accept.length
  // equivalent states have equal distances to acceptance: starting with these saves a round for each step of a chain
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

/** The canonical automaton: a state for each block, numbered breadth first by the smallest character, with the fewest classes. */
export const canonical = (dfa: CharDfa, block: Int32Array): CharDfa => {
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
