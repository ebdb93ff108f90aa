/**
 * The parts of a pushdown automaton over bytes, as a recursive transition network. A leaf is a DFA, optionally with a counter of
 * characters. A net has calls to other rules, tokens, epsilon edges, and one counter. Rules are compared by identity; a machine runs
 * them.
 */

/** A finite automaton over bytes. State 0 is the start, -1 in the table is failure. */
export interface Leaf {
  readonly _tag: "Leaf"
  readonly name: string
  /** The class of each byte. */
  readonly classOf: Uint8Array
  readonly width: number
  readonly next: Int32Array
  readonly accept: Uint8Array
  /** Counts characters, if lengths are bounded. */
  readonly counter: Counter | undefined
}

/** Bounds for the number of characters in a string leaf. */
export interface Counter {
  /** 1 for states between two characters: a byte other than the closing quote that leaves one begins a character. */
  readonly boundary: Uint8Array
  /** How many more characters are needed at least from each state. */
  readonly distance: Float64Array
  /** The largest finite one of them. */
  readonly slack: number
  readonly min: number
  readonly max: number
  /** Whether the states do not restrict the characters: then only the count matters. */
  readonly plain: boolean
}

/** The guard of an epsilon edge: none, or a condition on the counter. `enter` also counts. */
export type Guard = "always" | "enter" | "leave"

/** One state of a net. */
export interface NetState {
  readonly bytes: Array<readonly [low: number, high: number, target: number]>
  readonly empty: Array<readonly [guard: Guard, target: number]>
  readonly calls: Array<readonly [rule: Rule, target: number]>
  readonly tokens: Array<readonly [id: number, target: number]>
  accept: boolean
}

/** An automaton with calls. `enter` edges need a count below `max` and raise it, `leave` edges one of at least `min`. */
export interface Net {
  readonly _tag: "Net"
  readonly name: string
  readonly states: Array<NetState>
  min: number
  max: number
}

/** A part of the automaton. */
export type Rule = Leaf | Net

/** A net with one state, which is the start. */
export const makeNet = (name: string): Net => {
  const net: Net = { _tag: "Net", name, states: [], min: 0, max: Infinity }
  addState(net)
  return net
}

/** A new state. */
export const addState = (net: Net): number =>
  net.states.push({ bytes: [], empty: [], calls: [], tokens: [], accept: false }) - 1

/** An edge by one byte of a range. */
export const byteEdge = (net: Net, from: number, low: number, high: number, to: number): void => {
  net.states[from]!.bytes.push([low, high, to])
}

/** An epsilon edge. */
export const emptyEdge = (net: Net, from: number, to: number, guard: Guard = "always"): void => {
  net.states[from]!.empty.push([guard, to])
}

/** An edge that another rule reads. */
export const callEdge = (net: Net, from: number, rule: Rule, to: number): void => {
  net.states[from]!.calls.push([rule, to])
}

/** Edges for these bytes: the state after them. */
export const literal = (net: Net, from: number, bytes: Uint8Array, to: number = addState(net)): number => {
  let at = from
  bytes.forEach((byte, i) => {
    const target = i === bytes.length - 1 ? to : addState(net)
    byteEdge(net, at, byte, byte, target)
    at = target
  })
  if (bytes.length === 0) emptyEdge(net, from, to)
  return to
}

const encoder = new TextEncoder()

/** The UTF-8 bytes of a text. */
export const utf8 = (text: string): Uint8Array => encoder.encode(text)
