/**
 * Conversations that take their steps together. Each asks for the logits behind a text, or for a token; a fiber gathers what they ask for, chooses
 * what a step takes, runs it, and answers those who have all they want. Conversations come and go between steps.
 */
import type { JitError } from "@tg/jit/Jit"
import type { DeviceError } from "@tg/runtime/Device"
import { Deferred, Effect, Exit, Latch, Result, type Scope } from "effect"
import * as Fair from "./Fair.ts"
import { type Holding, type PageCopy, type Pages, pagesFor } from "./Pages.ts"
import type { RowDraw } from "./DrawRows.ts"
import type { Entry, Found, Pool } from "./Pool.ts"
import { isLost } from "./Recovering.ts"
import * as Sampler from "./Sampler.ts"
import { commonPrefix } from "./Tokens.ts"

/** Why a step gives no logits. */
export type BatchError = JitError | DeviceError | Sampler.InvalidLogits

/** A conversation among others. */
export interface Member {
  /** The logits behind the last `rows` of these tokens, which fit the context: `[rows, vocabulary]`. One at a time. */
  readonly logits: (tokens: ReadonlyArray<number>, rows?: number) => Effect.Effect<Float32Array, BatchError>
  /** The token behind these, drawn by a device that draws. */
  readonly token: (
    tokens: ReadonlyArray<number>,
    how: Pick<RowDraw, "mask" | "sampling">
  ) => Effect.Effect<number, BatchError>
  /** Tokens at the beginning of these that need not be computed. */
  readonly reusable: (tokens: ReadonlyArray<number>) => number
  /** Holds no more than the first so many tokens. */
  readonly keep: (count: number) => void
}

/** What has happened so far. */
export interface Counts {
  readonly steps: number
  /** Tokens that steps have taken. */
  readonly tokens: number
  /** How often a conversation gave way because memory was short. */
  readonly evicted: number
}

/** Conversations over one pool. */
export interface Batcher {
  /** Takes part until the Scope is closed; its tokens are then kept for others to begin with, as long as there is room. */
  readonly join: Effect.Effect<Member, never, Scope.Scope>
  readonly counts: () => Counts
}

/** What a seat is answered: the logits it asked for, or the token. */
interface Answer {
  readonly logits: Float32Array
  readonly token: number | undefined
}

/** What a seat waits for. */
interface Ask {
  readonly tokens: ReadonlyArray<number>
  readonly rows: number
  /** Where it waits for a token: how it is drawn. Nothing is then found but that. */
  readonly draw: RowDraw | undefined
  /** The logits that are there: of the tokens before this one. */
  readonly found: Float32Array
  done: number
  readonly answer: Deferred.Deferred<Answer, BatchError>
}

/** A conversation's place. */
interface Seat {
  holding: Holding | undefined
  ask: Ask | undefined
  servedAt: number
}

/** A seat's part of a step. */
interface Part {
  readonly seat: Seat
  readonly ask: Ask
  readonly holding: Holding
  readonly entry: Entry
}

/** What a step takes, and the copies of pages before it. */
interface Planned {
  readonly kind: Fair.Kind
  readonly parts: ReadonlyArray<Part>
  readonly copies: ReadonlyArray<PageCopy>
}

/** What runs steps. */
export type Runs = Pick<Pool, "batch" | "copy" | "clear" | "run">

interface State {
  readonly pool: Runs
  readonly pages: Pages
  readonly room: Fair.Room
  readonly vocabulary: number
  /** Those who came first are first. */
  readonly seats: Set<Seat>
  counts: Counts
  /** What the last step was. */
  last: Fair.Kind
  /** Why no step succeeds any more. */
  lost: DeviceError | undefined
}

/** How many turns other fibers get before a step, so that those who were answered can ask again. */
const turns = 3

/** Tokens of the text that are there. Those whose logits are wanted, and are not there, are computed in any case. */
const startOf = (holding: Holding, { done, rows, tokens }: Ask): number =>
  Math.min(commonPrefix(holding.tokens, tokens), Math.max(done, tokens.length - rows))

/** Its tokens are kept as long as there is room, and computed again when it has room again. */
const evict = (state: State, seat: Seat): void => {
  state.pages.close(seat.holding!)
  seat.holding = undefined
  state.counts = { ...state.counts, evicted: state.counts.evicted + 1 }
}

/** What a seat needs of the pool, and who may have to give way for it. */
interface Need {
  /** Pages, at least. */
  readonly pages: number
  readonly hasRoom: () => boolean
  /** Whether those that wait for nothing give way, too, whenever they came. */
  readonly idle: boolean
}

/** Makes conversations that came later give way, the last one first, until there is room; none, where all of them are not enough. */
const makeRoom = (state: State, seat: Seat, { hasRoom, idle, pages }: Need): boolean => {
  const order = [...state.seats]
  const at = order.indexOf(seat)
  const isVictim = (other: Seat, i: number): boolean => i > at || idle && other.ask === undefined && other !== seat
  const victims = order.filter((other, i) => other.holding !== undefined && isVictim(other, i))
  const isEnough = state.pages.available(victims.map(({ holding }) => holding!)) >= pages
  while (!hasRoom()) {
    const victim = isEnough ? victims.pop() : undefined
    if (victim === undefined) return false
    evict(state, victim)
  }
  return true
}

/** A seat that waits, and has pages. */
interface Waiting {
  readonly seat: Seat
  readonly ask: Ask
  readonly holding: Holding
  /** Tokens of its text that are there. */
  readonly start: number
}

/** Those who wait and have pages, or get some: one begins when there is room for all of it, else it would give way again at once. */
const seated = (state: State, idle: boolean, copies: Array<PageCopy>): ReadonlyArray<Waiting> => {
  const { pages, seats } = state
  const found: Array<Waiting> = []
  for (const seat of seats) {
    const { ask } = seat
    if (ask === undefined) continue
    if (seat.holding === undefined) {
      const needed = pagesFor(ask.tokens.length)
      const hasRoom = (): boolean => pages.available() >= needed
      if (!makeRoom(state, seat, { idle, hasRoom, pages: needed })) continue
      const opened = pages.open(ask.tokens)
      copies.push(...opened.copies)
      seat.holding = opened.holding
    }
    found.push({ seat, ask, holding: seat.holding, start: startOf(seat.holding, ask) })
  }
  return found
}

/** A seat's part of a step that takes so many of its tokens; nothing, where there is no room for them. */
const partOf = (
  state: State,
  { ask, holding, seat, start }: Waiting,
  { copies, count, idle }: { readonly count: number; readonly idle: boolean; readonly copies: Array<PageCopy> }
): Part | undefined => {
  const { pages } = state
  const end = start + count
  // one that came later may have given way meanwhile
  if (count === 0 || seat.holding !== holding) return undefined
  pages.keep(holding, start)
  let reserved: ReadonlyArray<PageCopy> | undefined
  const hasRoom = (): boolean => (reserved = pages.reserve(holding, start, end)) !== undefined
  const needed = pagesFor(end) - holding.pages.length
  if (!makeRoom(state, seat, { idle, hasRoom, pages: needed })) return undefined
  copies.push(...reserved!)
  const { draw, rows, tokens } = ask
  const wanted = Math.max(0, end - Math.max(start, tokens.length - rows))
  const entry: Entry = { tokens: tokens.slice(start, end), start, pages: holding.pages, rows: wanted }
  return { seat, ask, holding, entry: wanted > 0 && draw !== undefined ? { ...entry, draw } : entry }
}

/** What the next step takes of each, and the copies of pages before it. */
const planned = (state: State, idle: boolean): Planned => {
  const copies: Array<PageCopy> = []
  let waiting = seated(state, idle, copies)
  while (waiting.length > 0) {
    const asked = waiting.map(({ ask: { rows, tokens }, seat: { servedAt }, start }): Fair.Waiting => ({
      tokens: tokens.length - start,
      rows,
      servedAt
    }))
    const { kind, taken } = Fair.choose(asked, state.room, state.last)
    const parts = waiting.flatMap((each, i) => partOf(state, each, { copies, count: taken[i]!, idle }) ?? [])
    if (parts.length > 0) return { kind, parts, copies }
    // for those there is no room at the moment, and maybe for others
    waiting = waiting.filter(({ holding, seat }, i) => taken[i] === 0 && seat.holding === holding)
  }
  return { kind: "few", parts: [], copies }
}

/** Answers a seat, unless it has left, or has asked for something else. */
const answer = ({ ask, seat }: Part, exit: Exit.Exit<Answer, BatchError>): void => {
  Deferred.doneUnsafe(ask.answer, exit)
  if (seat.ask === ask) seat.ask = undefined
}

/** What a step found for a part: its logits, or its token. */
type PartFound = Float32Array | number

/** What the step found, part by part. */
const foundOf = (
  parts: ReadonlyArray<Part>,
  { logits, tokens }: Found,
  vocabulary: number
): ReadonlyArray<PartFound> => {
  let row = 0
  let drawn = 0
  return parts.map(({ entry: { draw, rows } }) => {
    if (draw !== undefined) return tokens[drawn++]!
    const own = logits.subarray(row * vocabulary, (row + rows) * vocabulary)
    row += rows
    return own
  })
}

/** Why nothing can be drawn from what a step found for a part. */
const invalidOf = ({ entry }: Part, found: PartFound, vocab: number): Sampler.InvalidLogits | undefined => {
  const end = entry.start + entry.tokens.length
  if (typeof found !== "number") return Sampler.invalidRow(found, vocab, end - entry.rows)
  return found < vocab ? undefined : new Sampler.InvalidLogits({ position: end - 1, vocab })
}

/** Takes what was found for a part; answers with the pages to clear. */
const settle = (state: State, part: Part, found: PartFound): ReadonlyArray<number> => {
  const { ask, entry, holding, seat } = part
  const end = entry.start + entry.tokens.length
  const invalid = invalidOf(part, found, state.vocabulary)
  if (invalid !== undefined) {
    if (seat.holding === holding) seat.holding = undefined
    answer(part, Exit.fail(invalid))
    return state.pages.drop(holding)
  }
  if (seat.holding === holding) holding.tokens = ask.tokens.slice(0, end)
  const isDrawn = typeof found === "number"
  if (!isDrawn) {
    const first = Math.max(entry.start, ask.tokens.length - ask.rows) - (ask.tokens.length - ask.rows)
    ask.found.set(found, first * state.vocabulary)
  }
  ask.done = end
  if (end === ask.tokens.length) {
    answer(part, Exit.succeed({ logits: ask.found, token: isDrawn ? found : undefined }))
  }
  return []
}

/** Takes what the next step takes: of those who came first, or, where that is nothing, of whoever waits. */
const nextParts = (state: State): Planned => {
  const first = planned(state, false)
  if (first.parts.length > 0) return first
  const second = planned(state, true)
  return { ...second, copies: [...first.copies, ...second.copies] }
}

const isWaiting = ({ seats }: State): boolean => [...seats].some(({ ask }) => ask !== undefined)

/** Nobody waits any more: all are told this. */
const refuse = ({ seats }: State, exit: Exit.Exit<never, BatchError>): void => {
  for (const seat of seats) {
    if (seat.ask !== undefined) Deferred.doneUnsafe(seat.ask.answer, exit)
    seat.ask = undefined
  }
}

/** Runs a step, if someone waits. */
const step = Effect.fnUntraced(function*(state: State) {
  const { counts: before, pool, vocabulary } = state
  if (!isWaiting(state)) return
  const { copies, kind, parts } = nextParts(state)
  if (parts.length === 0) return yield* Effect.die(new Error("a pool without room for one conversation"))
  const steps = before.steps + 1
  const tokens = parts.reduce((n, { entry }) => n + entry.tokens.length, before.tokens)
  state.counts = { ...state.counts, steps, tokens }
  state.last = kind
  for (const { seat } of parts) seat.servedAt = steps
  const entries = parts.map(({ entry }) => entry)
  const run = kind === "batch" ? pool.batch(entries[0]!) : pool.run(entries)
  const ran = yield* Effect.result(Effect.andThen(pool.copy(copies), run))
  if (Result.isFailure(ran)) {
    const exit = Exit.fail(ran.failure)
    // on a lost device nobody's step succeeds: they ask again on the next one
    if (isLost(ran.failure)) state.lost = ran.failure
    if (state.lost !== undefined) return refuse(state, exit)
    return parts.forEach((part) => answer(part, exit))
  }
  const found = foundOf(parts, ran.success, vocabulary)
  const cleared = parts.flatMap((part, i) => settle(state, part, found[i]!))
  yield* Effect.ignore(pool.clear(cleared))
})

/** What a member asks for. */
type Asked = Pick<Ask, "draw" | "rows" | "tokens">

/** A conversation at a seat. */
const memberAt = (state: State, seat: Seat, awake: Latch.Latch): Member => {
  const { pages, seats, vocabulary } = state
  const ask = (asked: Asked): Effect.Effect<Answer, BatchError> =>
    Effect.suspend(() => {
      if (state.lost !== undefined) return Effect.fail(state.lost)
      if (!seats.has(seat)) return Effect.interrupt
      const found = new Float32Array(asked.draw === undefined ? asked.rows * vocabulary : 0)
      const own: Ask = { ...asked, found, done: 0, answer: Deferred.makeUnsafe() }
      seat.ask = own
      awake.openUnsafe()
      const forget = Effect.sync(() => {
        if (seat.ask === own) seat.ask = undefined
      })
      return Effect.onInterrupt(Deferred.await(own.answer), () => forget)
    })
  return {
    logits: (tokens, rows = 1) => Effect.map(ask({ tokens, rows, draw: undefined }), ({ logits }) => logits),
    token: (tokens, how) =>
      Effect.map(ask({ tokens, rows: 1, draw: { ...how, position: tokens.length } }), ({ token }) => token!),
    reusable: (tokens) => {
      const { holding } = seat
      const there = holding === undefined ? pages.shared(tokens) : commonPrefix(holding.tokens, tokens)
      return Math.min(there, tokens.length - 1)
    },
    keep: (count) => {
      if (seat.holding !== undefined) pages.keep(seat.holding, count)
    }
  }
}

/** Conversations over a pool, whose steps run in the Scope. */
export const make: (
  pool: Runs,
  options: Pick<State, "pages" | "room" | "vocabulary">
) => Effect.Effect<Batcher, never, Scope.Scope> = Effect.fnUntraced(function*(pool, options) {
  const counts: Counts = { steps: 0, tokens: 0, evicted: 0 }
  const state: State = { pool, ...options, seats: new Set(), counts, last: "few", lost: undefined }
  const awake = Latch.makeUnsafe()
  const round = Effect.gen(function*() {
    yield* awake.await
    for (let i = 0; i < turns; i++) yield* Effect.yieldNow
    // a defect is one for all who wait: nobody is left waiting
    const ran = yield* Effect.exit(step(state))
    if (Exit.isFailure(ran)) refuse(state, Exit.failCause(ran.cause))
    if (!isWaiting(state)) awake.closeUnsafe()
  })
  const leave = (seat: Seat): void => {
    state.seats.delete(seat)
    if (seat.holding !== undefined) state.pages.close(seat.holding)
    seat.holding = undefined
  }
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      refuse(state, Exit.interrupt())
      for (const seat of state.seats) leave(seat)
    })
  )
  yield* Effect.forkScoped(Effect.forever(round))
  const sit = (): Seat => {
    const seat: Seat = { holding: undefined, ask: undefined, servedAt: 0 }
    state.seats.add(seat)
    return seat
  }
  return {
    counts: () => state.counts,
    join: Effect.map(
      Effect.acquireRelease(Effect.sync(sit), (seat) => Effect.sync(() => leave(seat))),
      (seat) => memberAt(state, seat, awake)
    )
  }
})
