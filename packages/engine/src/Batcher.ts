/**
 * Conversations that take their steps together. Each asks for the logits behind a text; a fiber gathers what they ask for, chooses
 * what a step takes, runs it, and answers those who have all they want. Conversations come and go between steps.
 */
import type { JitError } from "@tg/jit/Jit"
import type { DeviceError } from "@tg/runtime/Device"
import { Deferred, Effect, Exit, Latch, type Scope } from "effect"
import * as Fair from "./Fair.ts"
import { type Holding, type PageCopy, type Pages, pagesFor } from "./Pages.ts"
import type { Entry, Pool } from "./Pool.ts"
import * as Sampler from "./Sampler.ts"
import { commonPrefix } from "./Tokens.ts"

/** Why a step gives no logits. */
export type BatchError = JitError | DeviceError | Sampler.InvalidLogits

/** A conversation among others. */
export interface Member {
  /** The logits behind the last `rows` of these tokens, which fit the context: `[rows, vocabulary]`. One at a time. */
  readonly logits: (tokens: ReadonlyArray<number>, rows?: number) => Effect.Effect<Float32Array, BatchError>
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

/** What a seat waits for. */
interface Ask {
  readonly tokens: ReadonlyArray<number>
  readonly rows: number
  /** The logits that are there. */
  readonly found: Float32Array
  readonly answer: Deferred.Deferred<Float32Array, BatchError>
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

interface State {
  readonly pool: Pool
  readonly pages: Pages
  readonly room: Fair.Room
  readonly vocabulary: number
  /** Those who came first are first. */
  readonly seats: Set<Seat>
  counts: Counts
}

/** How many turns other fibers get before a step, so that those who were answered can ask again. */
const turns = 3

/** Tokens of the text that are there. Those whose logits are wanted are computed in any case. */
const startOf = (holding: Holding, { rows, tokens }: Ask): number =>
  Math.min(commonPrefix(holding.tokens, tokens), tokens.length - rows)

/** Its tokens are kept as long as there is room, and computed again when it has room again. */
const evict = (state: State, seat: Seat): void => {
  state.pages.close(seat.holding!)
  seat.holding = undefined
  state.counts = { ...state.counts, evicted: state.counts.evicted + 1 }
}

/**
 * Makes conversations that came later give way, the last one first, until `hasRoom`. With `idle`, those that wait for nothing give way,
 * too, whenever they came.
 */
const makeRoom = (state: State, seat: Seat, { hasRoom, idle }: {
  readonly hasRoom: () => boolean
  readonly idle: boolean
}): boolean => {
  const order = [...state.seats]
  const at = order.indexOf(seat)
  const victims = order.filter((other, i) =>
    other.holding !== undefined && other !== seat && (i > at || idle && other.ask === undefined)
  )
  while (!hasRoom()) {
    const victim = victims.pop()
    if (victim === undefined) return false
    evict(state, victim)
  }
  return true
}

/** What the next step takes of each, and the copies of pages before it. */
const planned = (
  state: State,
  idle: boolean
): { readonly parts: ReadonlyArray<Part>; readonly copies: ReadonlyArray<PageCopy> } => {
  const { pages, room, seats } = state
  const copies: Array<PageCopy> = []
  const waiting: Array<{ readonly seat: Seat; readonly ask: Ask; readonly holding: Holding; readonly start: number }> =
    []
  for (const seat of seats) {
    const { ask } = seat
    if (ask === undefined) continue
    if (seat.holding === undefined) {
      // it begins when there is room for all of it: else it would give way again at once
      const needed = pagesFor(ask.tokens.length)
      if (!makeRoom(state, seat, { idle, hasRoom: () => pages.available() >= needed })) continue
      const opened = pages.open(ask.tokens)
      copies.push(...opened.copies)
      seat.holding = opened.holding
    }
    waiting.push({ seat, ask, holding: seat.holding, start: startOf(seat.holding, ask) })
  }
  const taken = Fair.choose(
    waiting.map(({ ask: { rows, tokens }, seat, start }) => ({
      tokens: tokens.length - start,
      rows,
      servedAt: seat.servedAt
    })),
    room
  )
  const parts: Array<Part> = []
  for (const [i, { ask, holding, seat, start }] of waiting.entries()) {
    const end = start + taken[i]!
    // one that came later may have given way meanwhile
    if (end === start || seat.holding !== holding) continue
    pages.keep(holding, start)
    let reserved: ReadonlyArray<PageCopy> | undefined
    const hasRoom = (): boolean => (reserved = pages.reserve(holding, start, end)) !== undefined
    if (!makeRoom(state, seat, { hasRoom, idle })) continue
    copies.push(...reserved!)
    const { rows, tokens } = ask
    const wanted = Math.max(0, end - Math.max(start, tokens.length - rows))
    parts.push({
      seat,
      ask,
      holding,
      entry: { tokens: tokens.slice(start, end), start, pages: holding.pages, rows: wanted }
    })
  }
  return { parts, copies }
}

/** Answers a seat, unless it has left, or has asked for something else. */
const answer = ({ ask, seat }: Part, exit: Exit.Exit<Float32Array, BatchError>): void => {
  Deferred.doneUnsafe(ask.answer, exit)
  if (seat.ask === ask) seat.ask = undefined
}

/** Takes a part's logits out of those of the step; answers with the pages to clear. */
const settle = (state: State, part: Part, logits: Float32Array): ReadonlyArray<number> => {
  const { ask, entry, holding, seat } = part
  const end = entry.start + entry.tokens.length
  const invalid = Sampler.invalidRow(logits, state.vocabulary, end - entry.rows)
  if (invalid !== undefined) {
    if (seat.holding === holding) seat.holding = undefined
    answer(part, Exit.fail(invalid))
    return state.pages.drop(holding)
  }
  if (seat.holding === holding) holding.tokens = ask.tokens.slice(0, end)
  const first = Math.max(entry.start, ask.tokens.length - ask.rows) - (ask.tokens.length - ask.rows)
  ask.found.set(logits, first * state.vocabulary)
  if (end === ask.tokens.length) answer(part, Exit.succeed(ask.found))
  return []
}

/** Runs a step; `false` where nobody waits. */
const step = Effect.fnUntraced(function*(state: State) {
  const { pool, seats, vocabulary } = state
  if (![...seats].some(({ ask }) => ask !== undefined)) return false
  const first = planned(state, false)
  const { copies, parts } = first.parts.length > 0 ? first : merged(first.copies, planned(state, true))
  if (parts.length === 0) return yield* Effect.die(new Error("a pool without room for one conversation"))
  const number = state.counts.steps + 1
  state.counts = {
    ...state.counts,
    steps: number,
    tokens: state.counts.tokens + parts.reduce((n, { entry }) => n + entry.tokens.length, 0)
  }
  for (const { seat } of parts) seat.servedAt = number
  const ran = yield* Effect.exit(Effect.andThen(pool.copy(copies), pool.run(parts.map(({ entry }) => entry))))
  if (Exit.isFailure(ran)) {
    for (const part of parts) answer(part, ran)
    return true
  }
  let at = 0
  const cleared: Array<number> = []
  for (const part of parts) {
    const rows = part.entry.rows * vocabulary
    cleared.push(...settle(state, part, ran.value.subarray(at, at + rows)))
    at += rows
  }
  yield* Effect.ignore(pool.clear(cleared))
  return true
})

const merged = (copies: ReadonlyArray<PageCopy>, next: ReturnType<typeof planned>): ReturnType<typeof planned> => ({
  parts: next.parts,
  copies: [...copies, ...next.copies]
})

/** Conversations over a pool, whose steps run in the Scope. */
export const make: (
  pool: Pool,
  options: { readonly pages: Pages; readonly room: Fair.Room; readonly vocabulary: number }
) => Effect.Effect<Batcher, never, Scope.Scope> = Effect.fnUntraced(function*(pool, { pages, room, vocabulary }) {
  const state: State = {
    pool,
    pages,
    room,
    vocabulary,
    seats: new Set(),
    counts: { steps: 0, tokens: 0, evicted: 0 }
  }
  const awake = Latch.makeUnsafe()
  let isOpen = true
  const refuse = (exit: Exit.Exit<never, BatchError>): void => {
    for (const seat of state.seats) {
      if (seat.ask !== undefined) Deferred.doneUnsafe(seat.ask.answer, exit)
      seat.ask = undefined
    }
  }
  const round = Effect.gen(function*() {
    yield* awake.await
    for (let i = 0; i < turns; i++) yield* Effect.yieldNow
    // what goes wrong here goes wrong for all who wait: nobody is left waiting
    const ran = yield* Effect.exit(step(state))
    if (Exit.isFailure(ran)) refuse(Exit.failCause(ran.cause))
    if (![...state.seats].some(({ ask }) => ask !== undefined)) awake.closeUnsafe()
  })
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      isOpen = false
      refuse(Exit.interrupt())
    })
  )
  yield* Effect.forkScoped(Effect.forever(round))

  const leave = (seat: Seat) =>
    Effect.sync(() => {
      state.seats.delete(seat)
      if (seat.holding !== undefined) pages.close(seat.holding)
      seat.holding = undefined
    })
  return {
    counts: () => state.counts,
    join: Effect.map(
      Effect.acquireRelease(
        Effect.sync(() => {
          const seat: Seat = { holding: undefined, ask: undefined, servedAt: 0 }
          state.seats.add(seat)
          return seat
        }),
        leave
      ),
      (seat): Member => ({
        logits: (tokens, rows = 1) =>
          Effect.suspend(() => {
            if (!isOpen || !state.seats.has(seat)) return Effect.interrupt
            const ask: Ask = {
              tokens,
              rows,
              found: new Float32Array(rows * vocabulary),
              answer: Deferred.makeUnsafe()
            }
            seat.ask = ask
            awake.openUnsafe()
            return Deferred.await(ask.answer).pipe(
              Effect.onInterrupt(() =>
                Effect.sync(() => {
                  if (seat.ask === ask) seat.ask = undefined
                })
              )
            )
          }),
        reusable: (tokens) =>
          Math.min(
            seat.holding === undefined ? pages.shared(tokens) : commonPrefix(seat.holding.tokens, tokens),
            tokens.length - 1
          ),
        keep: (count) => {
          if (seat.holding !== undefined) pages.keep(seat.holding, count)
        }
      })
    )
  }
})
