/** A grammar over a vocabulary: which tokens may come next, token by token. */
import { Result } from "effect"
import { type InvalidGrammar, RejectedToken } from "./ConstrainError.ts"
import type { Grammar } from "./Grammar.ts"
import { type Base, baseOf, leafKey, walk } from "./internal/base.ts"
import { compile } from "./internal/compile.ts"
import * as Machine from "./internal/machine.ts"
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
  /** A matcher at the same place, that goes its own way. */
  readonly clone: () => Matcher
}

/** More states than this are forgotten and computed again. */
const maxStates = 20_000

/** A grammar and a vocabulary, with the masks of the states that were seen. */
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
  for (const frame of state.frames) {
    const base = baseFor(run, frame)
    for (let i = 0; i < bits.length; i++) bits[i]! |= base.bits[i]!
    if (frame.parents !== machine.root && base.exits.length > 0) {
      const after = machine.open(frame.parents)
      for (const node of base.exits) walk(table.tree, machine, after, node, bits)
    }
    if (frame.rule._tag === "Net") {
      for (const [id] of frame.rule.states[frame.state]!.tokens) {
        if (id < table.size) bits[id >>> 5]! |= 1 << (id & 31)
      }
    }
  }
  run.masks.set(state, bits)
  return bits
}

/** The base of a frame, kept by the table for leaves, which grammars share, and by the run for nets. */
const baseFor = ({ bases, machine, table }: Run, frame: Machine.Frame): Base => {
  const { count, rule, state } = frame
  if (rule._tag === "Net") {
    const key = `${machine.placeOf(frame)}`
    return remember(bases, key, () => baseOf(table.tree, table.words, machine, machine.detach(frame)))
  }
  const isBody = rule.counter === undefined ? rule === plainString && state === 1 : rule.counter.plain && state === 1
  if (isBody) {
    const { max, min } = rule.counter ?? { max: Infinity, min: 0 }
    return table.plain.base(Math.max(0, min - count), max - count)
  }
  const kept = table.leaves.get(rule) ?? new Map<string, Base>()
  table.leaves.set(rule, kept)
  return remember(
    kept,
    leafKey(rule, state, count),
    () => baseOf(table.tree, table.words, machine, machine.detach(frame))
  )
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
