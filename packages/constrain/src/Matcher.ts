/** A grammar over a vocabulary: which tokens may come next, token by token. */
import { Result } from "effect"
import { type InvalidGrammar, RejectedToken } from "./ConstrainError.ts"
import type { Grammar } from "./Grammar.ts"
import { type Base, baseOf, leafKey, walkExits } from "./internal/base.ts"
import { compile, leavesOf } from "./internal/compile.ts"
import * as Machine from "./internal/machine.ts"
import type { Leaf, Rule } from "./internal/rule.ts"
import { plainString } from "./internal/strings.ts"
import type { TokenTable } from "./TokenTable.ts"

/** What may come next. */
export interface Matcher {
  /** One bit per token id (bit id & 31 of word id >>> 5): 1 where the token may come next. Valid until `accept`. */
  readonly mask: () => Uint32Array
  /** Takes the token that was drawn; throws `RejectedToken` if the mask forbids it. */
  readonly accept: (id: number) => void
  /** Whether nothing but an end token may follow. */
  readonly isFinished: () => boolean
  /** Whether the text may end here. */
  readonly isComplete: () => boolean
  /** An independent matcher at the same place. */
  readonly clone: () => Matcher
}

/** Memoised states beyond which they are dropped and recomputed. */
const maxStates = 20_000

/** A grammar over a vocabulary, with the memoised masks of its states. */
interface Run {
  readonly machine: Machine.Machine
  readonly table: TokenTable
  readonly bases: Map<string, Base>
  masks: WeakMap<Machine.State, Uint32Array>
}

const runs = new WeakMap<TokenTable, WeakMap<Grammar, Run>>()

/** A matcher at the start of the grammar. Matchers of one grammar share what they compute. */
export const make = (grammar: Grammar, table: TokenTable): Matcher => Result.getOrThrow(makeResult(grammar, table))

/** As `make`, with the reason why a grammar matches nothing as a value. */
export const makeResult = (grammar: Grammar, table: TokenTable): Result.Result<Matcher, InvalidGrammar> =>
  Result.map(compile(grammar), (rule) => {
    const known = runs.get(table)?.get(grammar)
    const run = known ?? { machine: Machine.make(rule), table, bases: new Map(), masks: new WeakMap() }
    if (known === undefined) {
      prepare(run, rule)
      const byGrammar = runs.get(table) ?? new WeakMap<Grammar, Run>()
      byGrammar.set(grammar, run)
      runs.set(table, byGrammar)
    }
    return at(run, run.machine.start, false)
  })

const at = (run: Run, from: Machine.State, isEnded: boolean): Matcher => {
  let state = from
  let ended = isEnded
  return {
    mask: () => ended ? endMask(run.table) : maskOf(run, state),
    accept: (id) => {
      const next = follow(run, state, id, ended)
      if (next === "end") ended = true
      else state = next
      if (run.machine.size() > maxStates) {
        run.machine.forget()
        run.bases.clear()
        run.masks = new WeakMap()
      }
    },
    isFinished: () => ended || (state.accepting && state.frames.length === 0),
    isComplete: () => ended || state.accepting,
    clone: () => at(run, state, ended)
  }
}

const follow = ({ machine, table }: Run, state: Machine.State, id: number, ended: boolean): Machine.State | "end" => {
  const reject = (reason: string): RejectedToken => new RejectedToken({ id, reason })
  if (!(Number.isInteger(id) && id >= 0 && id < table.size)) throw reject(`the vocabulary has ${table.size} tokens`)
  if (table.endTokens.includes(id) && (ended || state.accepting)) return "end"
  if (ended) throw reject("the text has ended: only an end token may follow")
  const named = machine.stepToken(state, id)
  const bytes = table.bytesOf(id)
  let next: Machine.State | null = bytes === undefined ? null : state
  for (const byte of bytes ?? []) next = next === null ? null : machine.step(next, byte)
  if (named !== null && next !== null) return machine.either(named, next)
  if (named !== null) return named
  if (next !== null) return next
  throw reject(`the grammar does not allow it here${bytes === undefined ? ", and it stands for no text" : ""}`)
}

const endMask = (table: TokenTable): Uint32Array => {
  const bits = new Uint32Array(table.words)
  for (const id of table.endTokens) bits[id >>> 5]! |= 1 << (id & 31)
  return bits
}

const maskOf = (run: Run, state: Machine.State): Uint32Array => {
  const known = run.masks.get(state)
  if (known !== undefined) return known
  const { machine, table } = run
  const bits = state.accepting ? endMask(table) : new Uint32Array(table.words)
  for (const group of groupsOf(state)) {
    const base = baseFor(run, group)
    for (let i = 0; i < bits.length; i++) bits[i]! |= base.bits[i]!
    const { parents } = group[0]!
    if (parents !== machine.root && base.exits !== undefined) {
      walkExits(table.tree, machine, base.exits, { after: machine.open(parents), bits })
    }
    for (const { rule, state } of group) {
      for (const [id] of rule._tag === "Net" ? rule.states[state]!.tokens : []) {
        if (id < table.size) bits[id >>> 5]! |= 1 << (id & 31)
      }
    }
  }
  run.masks.set(state, bits)
  return bits
}

/** Frames of leaves one by one, since their bases are shared; those of nets grouped by what follows. */
const groupsOf = ({ frames }: Machine.State): Iterable<ReadonlyArray<Machine.Frame>> =>
  Map.groupBy(frames, (frame) => frame.rule._tag === "Leaf" ? frame : frame.parents).values()

const baseFor = (run: Run, group: ReadonlyArray<Machine.Frame>): Base => {
  const { bases, machine, table } = run
  const [first] = group
  if (first!.rule._tag === "Leaf") return leafBase(run, first!, first!.rule)
  const key = group.map(machine.placeOf).join()
  return remember(bases, key, () => baseOf(table.tree, table.words, machine, machine.detach(group)))
}

/** The base of a place in a leaf, memoised in the table for all grammars. */
const leafBase = ({ machine, table }: Run, frame: Machine.Frame, leaf: Leaf): Base => {
  const { count, state } = frame
  const isBody = state === 1 && (leaf === plainString || leaf.counter?.plain === true)
  if (isBody) {
    const { max, min } = leaf.counter ?? { max: Infinity, min: 0 }
    return table.plain.base(Math.max(0, min - count), max - count)
  }
  const kept = table.leaves.get(leaf) ?? new Map<string, Base>()
  table.leaves.set(leaf, kept)
  return remember(
    kept,
    leafKey(leaf, state, count),
    () => baseOf(table.tree, table.words, machine, machine.detach([frame]))
  )
}

/** A state with at least this many different next bytes is wide: its base takes milliseconds. */
const wide = 48

/** The most bases that are precomputed for one grammar. */
const maxAhead = 64

/** Precomputes the bases of the wide states of a grammar's leaves, against latency spikes of single tokens. */
const prepare = (run: Run, root: Rule): void => {
  let left = maxAhead
  for (const leaf of leavesOf(root)) {
    for (let state = 0; state < leaf.accept.length && left > 0; state++) {
      if (leaf === plainString || leaf.counter?.plain === true || !isSlow(leaf, state)) continue
      left--
      const [frame] = run.machine.detach([
        { id: -1, rule: leaf, state, count: 0, parents: run.machine.root }
      ]).frames
      leafBase(run, frame!, leaf)
    }
  }
}

/** Whether the state, or the one behind the opening quote, is wide. */
const isSlow = (leaf: Leaf, state: number): boolean => {
  const inside = leaf.next[state * leaf.width + leaf.classOf[0x22]!]!
  return widthOf(leaf, state) >= wide || (state === 0 && inside > 0 && widthOf(leaf, inside) >= wide)
}

const widthOf = (leaf: Leaf, state: number): number => {
  let found = 0
  for (let byte = 0; byte < 256; byte++) if (leaf.next[state * leaf.width + leaf.classOf[byte]!]! >= 0) found++
  return found
}

const remember = (kept: Map<string, Base>, key: string, make: () => Base): Base => {
  const known = kept.get(key)
  if (known !== undefined) return known
  const made = make()
  if (kept.size >= maxBases) kept.clear()
  kept.set(key, made)
  return made
}

/** A base of 150 000 tokens takes 20 kB. */
const maxBases = 4096
