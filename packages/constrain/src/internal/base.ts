/** The context-independent part of a mask, and the tokens that depend on what follows a rule. */
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
  /** The tokens that run over the end of the rule; undefined if there are none. */
  readonly exits: Exits | undefined
}

/** Tokens that cross the end of a rule, by the number of their characters inside of it. */
export interface Exits {
  /** Trie nodes at which the rule has ended, with large subtries, most of which fail early. */
  readonly large: ReadonlyArray<Exit>
  /** The merged subtries below all other nodes at which the rule has ended. */
  readonly small: ExitTrie
  readonly least: number
  readonly most: number
}

/**
 * The suffixes of tokens behind the end of a rule, as a trie in preorder; node 0 is the end itself. Thousands of tokens end a string
 * and share a few suffixes, each of which is matched once.
 */
export interface ExitTrie {
  readonly byte: Uint8Array
  readonly end: Int32Array
  readonly depth: Uint16Array
  /** The tokens that end at each node, by characters inside of the rule if those were counted. */
  readonly tokens: ReadonlyArray<ReadonlyArray<number>>
  readonly lengths: ReadonlyArray<ReadonlyArray<number>>
}

/** Sets the bits of the tokens that end at a node. */
export const allow = (tree: Tree, node: number, bits: Uint32Array): void => {
  for (let id = tree.token[node]!; id >= 0; id = tree.sameAs[id]!) bits[id >>> 5]! |= 1 << (id & 31)
}

/** Matches the subtrie of a node from a state: sets the bits of tokens that pass, and reports nodes where the text may end. */
const walk = (
  tree: Tree,
  machine: Machine,
  { from, top }: { readonly from: State; readonly top: number },
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
  const exits: Array<Exit> = []
  walk(tree, machine, { from: detached, top: 0 }, bits, (node) => exits.push({ node, length: 0 }))
  if (exits.length === 0) return { bits, exits: undefined }
  return { bits, exits: { ...joined(tree, exits), least: 0, most: Infinity } }
}

/** Subtries with more nodes are not merged with others. */
const maxJoined = 32

const joined = (tree: Tree, exits: ReadonlyArray<Exit>): Pick<Exits, "large" | "small"> => {
  const isLarge = ({ node }: Exit): boolean => tree.end[node]! - node > maxJoined
  return { large: exits.filter(isLarge), small: exitTrie(tree, exits.filter((exit) => !isLarge(exit))) }
}

/** The merged subtries of some nodes. */
const exitTrie = (tree: Tree, exits: ReadonlyArray<Exit>): ExitTrie => {
  interface Node {
    readonly children: Map<number, Node>
    readonly tokens: Array<number>
    readonly lengths: Array<number>
  }
  const make = (): Node => ({ children: new Map(), tokens: [], lengths: [] })
  const root = make()
  for (const { length, node: top } of exits) {
    const path = [root]
    for (let node = top + 1; node < tree.end[top]!; node++) {
      const level = tree.depth[node]! - tree.depth[top]!
      const { children } = path[level - 1]!
      const child = children.get(tree.byte[node]!) ?? make()
      children.set(tree.byte[node]!, child)
      path[level] = child
      for (let id = tree.token[node]!; id >= 0; id = tree.sameAs[id]!) {
        child.tokens.push(id)
        child.lengths.push(length)
      }
    }
  }
  const rows: Array<{ readonly byte: number; readonly depth: number; readonly node: Node; end: number }> = []
  const list = (node: Node, byte: number, depth: number): void => {
    const row = { byte, depth, node, end: 0 }
    rows.push(row)
    for (const [next, child] of node.children) list(child, next, depth + 1)
    row.end = rows.length
  }
  list(root, 0, 0)
  return {
    byte: Uint8Array.from(rows, (row) => row.byte),
    end: Int32Array.from(rows, (row) => row.end),
    depth: Uint16Array.from(rows, (row) => row.depth),
    tokens: rows.map((row) => row.node.tokens),
    lengths: rows.map((row) => row.node.lengths)
  }
}

/** Sets the bits of the tokens that cross the end of a rule, from the state behind it. */
export const walkExits = (
  tree: Tree,
  machine: Machine,
  { large, least, most, small }: Exits,
  { after, bits }: { readonly after: State; readonly bits: Uint32Array }
): void => {
  for (const { length, node } of large) {
    if (length >= least && length <= most) walk(tree, machine, { from: after, top: node }, bits)
  }
  const { byte, depth, end, lengths, tokens } = small
  const states: Array<State> = [after]
  const isFree = least === 0 && most === Infinity
  for (let node = 1; node < byte.length;) {
    const level = depth[node]!
    const next = machine.step(states[level - 1]!, byte[node]!)
    if (next === null) {
      node = end[node]!
      continue
    }
    states[level] = next
    const ids = tokens[node]!
    for (let i = 0; i < ids.length; i++) {
      const length = lengths[node]![i]!
      if (isFree || (length >= least && length <= most)) bits[ids[i]! >>> 5]! |= 1 << (ids[i]! & 31)
    }
    node++
  }
}

/** Most characters of a token that are counted: longer tokens are never allowed near a bound. */
const longest = 1024

/**
 * Bases between two characters of a JSON string whose characters are free. They depend on how many characters are still
 * needed and how many are left; computed from a table of all tokens, by length.
 */
export class PlainStrings {
  private readonly tree: Tree
  private readonly words: number
  private readonly table: {
    readonly upTo: ReadonlyArray<Uint32Array>
    readonly exits: ReadonlyArray<Exit>
    readonly over: Pick<Exits, "large" | "small">
  }
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
    const { exits, over, upTo } = this.table
    const bits = upTo[Math.min(most, upTo.length - 1)]!.slice()
    for (const { length, node } of exits) if (length >= least && length <= most) allow(this.tree, node, bits)
    const base = { bits, exits: { ...over, least, most: most === longest ? Infinity : most } }
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
    return { upTo, exits, over: joined(this.tree, exits) }
  }
}

/** A node of the tree of tokens at which a rule has ended, and how many characters it has inside of the rule. */
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
