/** The part of a mask that does not depend on what follows a rule, and where the rest has to be asked for. */
import type { Tree } from "../TokenTable.ts"
import * as Machines from "./machine.ts"
import type { Leaf } from "./rule.ts"
import { plainString } from "./strings.ts"

type Machine = Machines.Machine
type State = Machines.State

/** What may come next while a rule goes on. */
export interface Base {
  /** The tokens that stay inside of the rule or end where it may end. */
  readonly bits: Uint32Array
  /** Nodes of the tree, with descendants, at which the rule may have ended. */
  readonly exits: ReadonlyArray<number>
}

/** Sets the bits of the tokens that end at a node. */
export const allow = (tree: Tree, node: number, bits: Uint32Array): void => {
  for (let id = tree.token[node]!; id >= 0; id = tree.sameAs[id]!) bits[id >>> 5]! |= 1 << (id & 31)
}

/** Walks the descendants of a node from a state: sets the bits of what passes, and tells of nodes where the text may end. */
export const walk = (
  tree: Tree,
  machine: Machine,
  from: State,
  top: number,
  bits: Uint32Array,
  onEnd?: (node: number) => void
): void => {
  const { byte, depth, end } = tree
  const base = depth[top]!
  const states: Array<State> = [from]
  const last = end[top]!
  for (let node = top + 1; node < last;) {
    const level = depth[node]! - base
    const state = states[level - 1]!
    const known = state.next[byte[node]!]
    const next = known === undefined ? machine.step(state, byte[node]!) : known
    if (next === null) {
      node = end[node]!
      continue
    }
    allow(tree, node, bits)
    if (next.accepting && onEnd !== undefined && end[node]! > node + 1) onEnd(node)
    states[level] = next
    node++
  }
}

/** The base of a state of one frame. */
export const baseOf = (tree: Tree, words: number, machine: Machine, detached: State): Base => {
  const bits = new Uint32Array(words)
  const exits: Array<number> = []
  walk(tree, machine, detached, 0, bits, (node) => exits.push(node))
  return { bits, exits }
}

/** The most characters of one token that count: longer ones are never allowed near a bound. */
const longest = 1024

/**
 * Bases between two characters of a JSON string whose characters are free. They depend on how many characters are still
 * needed and how many are left; computed from a table of all tokens, by length.
 */
export class PlainStrings {
  private readonly tree: Tree
  private readonly words: number
  private readonly table: { readonly upTo: ReadonlyArray<Uint32Array>; readonly exits: ReadonlyArray<Exit> }
  private readonly bases = new Map<string, Base>()

  constructor(tree: Tree, words: number) {
    this.tree = tree
    this.words = words
    this.table = this.tabulate()
  }

  /** The base with at least `needed` and at most `left` characters to come. */
  base(needed: number, left: number): Base {
    const [least, most] = [Math.min(needed, longest), Math.min(left, longest)]
    const key = `${least},${most}`
    const known = this.bases.get(key)
    if (known !== undefined) return known
    const { exits, upTo } = this.table
    const bits = upTo[Math.min(most, upTo.length - 1)]!.slice()
    const found: Array<number> = []
    for (const { length, node } of exits) {
      if (length < least || length > most) continue
      allow(this.tree, node, bits)
      if (this.tree.end[node]! > node + 1) found.push(node)
    }
    const base = { bits, exits: found }
    this.bases.set(key, base)
    return base
  }

  /** All tokens inside of a string by number of characters, and all nodes that a closing quote leads to. */
  private tabulate(): PlainStrings["table"] {
    const machine = Machines.make(plainString)
    const body = machine.step(machine.start, 0x22)!
    const { byte, depth, end, token } = this.tree
    const byLength: Array<Uint32Array> = []
    const exits: Array<Exit> = []
    const states: Array<State> = [body]
    const lengths: Array<number> = [0]
    for (let node = 1; node < byte.length;) {
      const level = depth[node]!
      const state = states[level - 1]!
      const next = machine.step(state, byte[node]!)
      if (next === null) {
        node = end[node]!
        continue
      }
      if (next.accepting) {
        exits.push({ node, length: lengths[level - 1]! })
        node = end[node]!
        continue
      }
      states[level] = next
      // a character counts with its first byte
      lengths[level] = Math.min(longest, lengths[level - 1]! + (state === body ? 1 : 0))
      if (token[node]! >= 0) allow(this.tree, node, byLength[lengths[level]!] ??= new Uint32Array(this.words))
      node++
    }
    let sum = new Uint32Array(this.words)
    const upTo = Array.from(byLength, (bits) => sum = bits === undefined ? sum : sum.map((word, i) => word | bits[i]!))
    if (upTo.length === 0) upTo.push(sum)
    return { upTo, exits }
  }
}

interface Exit {
  readonly node: number
  readonly length: number
}

/** The name of a state of a leaf whose bases are kept: counts from which no token comes near a bound are one. */
export const leafKey = (leaf: Leaf, state: number, count: number): string => {
  if (leaf.counter === undefined) return `${state}`
  const { max, min, slack } = leaf.counter
  return count >= min && max - count > slack + longest ? `${state},far` : `${state},${count}`
}
