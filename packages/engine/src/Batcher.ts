/**
 * Conversations that take their steps together. Each asks for the logits behind a text, or for a token; a fiber gathers what they ask for, chooses
 * what a step takes, submits it, and answers those who have all they want when it has run. Conversations come and go between steps. Where a
 * device draws, steps are submitted before the tokens of those in front of them are known (`Course`).
 */
import type { JitError } from "@tg/jit/Jit"
import type { DeviceError } from "@tg/runtime/Device"
import { Clock, Deferred, Effect, Exit, Latch, Option, type Scope } from "effect"
import * as Course from "./Course.ts"
import type { RowDraw } from "./DrawRows.ts"
import * as Guesses from "./Guesses.ts"
import type { Flight, Found, Pool } from "./Pool.ts"
import { isLost } from "./Recovering.ts"
import * as Sampler from "./Sampler.ts"
import * as Seats from "./Seats.ts"
import { mostAhead } from "./TokenRing.ts"
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
  /** The tokens behind the last `rows` of these, drawn in the same way. */
  readonly tokens: (
    tokens: ReadonlyArray<number>,
    rows: number,
    how: Pick<RowDraw, "sampling">
  ) => Effect.Effect<ReadonlyArray<number>, BatchError>
  /**
   * Up to so many tokens that the model's prediction block guesses behind these; none, where it is not there, where tokens in front of the last are not
   * computed, or where memory is short.
   */
  readonly predict: (
    tokens: ReadonlyArray<number>,
    most: number
  ) => Effect.Effect<ReadonlyArray<number>, BatchError>
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
  /** Steps that were submitted before the one in front of them had come back. */
  readonly ahead: number
  /** Tokens that steps have drawn and nobody wanted: those behind an end. */
  readonly dropped: number
  /** How often the prediction block guessed, and for how many texts together. */
  readonly guesses: number
  readonly guessed: number
  /** How often a conversation gave way because memory was short. */
  readonly evicted: number
  /** Milliseconds in which steps were chosen. */
  readonly planMillis: number
  /** Milliseconds in which they were written, encoded and submitted. */
  readonly submitMillis: number
  /** Milliseconds in which there was nothing to do but wait for a step. */
  readonly waitMillis: number
  /** Milliseconds in which no step was under way, and so the device had nothing to do. */
  readonly idleMillis: number
}

/** Conversations over one pool. */
export interface Batcher {
  /** Takes part until the Scope is closed; its tokens are then kept for others to begin with, as long as there is room. */
  readonly join: Effect.Effect<Member, never, Scope.Scope>
  readonly counts: () => Counts
}

type Ask = Seats.Ask<BatchError>
type Seat = Seats.Seat<BatchError>
type Part = Seats.Part<BatchError>

/** A step that is under way. */
interface UnderWay {
  /** What it takes, and the lines of its seats when it was submitted. */
  readonly parts: ReadonlyArray<Part>
  readonly lines: ReadonlyArray<number>
  /** Whether it is a batch of several conversations. */
  readonly isShared: boolean
  /** What became of it, once it is known. */
  exit: Exit.Exit<Found, BatchError> | undefined
}

/** What runs steps. */
export type Runs = Pick<Pool, "batch" | "copy" | "clear" | "predict" | "run">

interface State extends Seats.Seats<BatchError> {
  readonly pool: Runs
  readonly vocabulary: number
  readonly awake: Latch.Latch
  /** Those who wait for guesses. */
  readonly guessing: Set<Guesses.Asking<BatchError>>
  /** Steps that are under way, in order. */
  readonly flights: Array<UnderWay>
  counts: Omit<Counts, "evicted">
  /** When the last step came back, if none was under way since. */
  idleSince: number | undefined
  /** Why no step succeeds any more. */
  lost: DeviceError | undefined
}

/** How many turns other fibers get before a step, so that those who were answered can ask again. */
const turns = 3

/** Steps after which one whose host looks at every token is no longer waited for. */
const fewSteps = 2

const nanosPerMilli = 1e6

const count = (state: State, more: Partial<State["counts"]>): void => {
  const counts = { ...state.counts }
  for (const [name, by] of Object.entries(more)) counts[name as keyof typeof counts] += by
  state.counts = counts
}

/** Answers a seat, unless it has left, or has asked for something else. */
const answer = (seat: Seat, ask: Ask, exit: Exit.Exit<Seats.Answer, BatchError>): void => {
  Deferred.doneUnsafe(ask.answer, exit)
  if (seat.ask === ask) seat.ask = undefined
}

/** What a step found for a part: its logits, or its tokens. */
type PartFound = { readonly logits: Float32Array } | { readonly ids: Uint32Array }

/** What the step found, part by part. */
const foundOf = (
  parts: ReadonlyArray<Part>,
  { logits, tokens }: Found,
  vocabulary: number
): ReadonlyArray<PartFound> => {
  let row = 0
  let drawn = 0
  return parts.map(({ entry: { draw, rows } }) => {
    if (draw !== undefined) return { ids: tokens.subarray(drawn, drawn += rows) }
    return { logits: logits.subarray(row * vocabulary, (row += rows) * vocabulary) }
  })
}

/** Why nothing can be drawn from what a step found for a part. */
const invalidOf = ({ entry }: Part, found: PartFound, vocab: number): Sampler.InvalidLogits | undefined => {
  const first = entry.start + entry.tokens.length - entry.rows
  if ("logits" in found) return Sampler.invalidRow(found.logits, vocab, first)
  const row = found.ids.findIndex((id) => id >= vocab)
  return row < 0 ? undefined : new Sampler.InvalidLogits({ position: first + row, vocab })
}

/** The ask that a part, or what its course has drawn, answers. */
const askOf = ({ ask, course, seat }: Part): Ask | undefined =>
  ask ?? (course !== undefined && seat.course === course && seat.ask?.draw !== undefined ? seat.ask : undefined)

/** A token that was drawn on a course. */
const goOn = (state: State, { ask, course, seat }: Part, id: number): void => {
  if (course === undefined) return
  if (seat.course !== course) return ask === undefined ? count(state, { dropped: 1 }) : undefined
  course.pending.shift()
  course.text.push(id)
  const waiting = seat.ask
  const token = waiting?.draw === undefined ? undefined : course.text[waiting.tokens.length]
  if (waiting !== undefined && waiting !== ask && token !== undefined) {
    answer(seat, waiting, Exit.succeed({ logits: waiting.found, ids: [token] }))
  }
}

/** Takes what was found for a part; answers with the pages to clear. */
const settle = (
  state: State,
  part: Part,
  { found, isCurrent, isShared }: {
    readonly found: PartFound
    readonly isCurrent: boolean
    readonly isShared: boolean
  }
): ReadonlyArray<number> => {
  const { ask, course, entry, holding, seat } = part
  const end = entry.start + entry.tokens.length
  const isOwn = isCurrent && seat.holding === holding
  const invalid = invalidOf(part, found, state.vocabulary)
  if (invalid !== undefined) {
    // what is drawn where nobody looks any more is nobody's
    if (!isOwn && ask === undefined) return []
    const waiting = askOf(part)
    if (seat.course === course) seat.course = undefined
    if (seat.holding === holding) seat.holding = undefined
    // what is no number of one conversation is none of those in its batch: each begins again, alone
    if (isShared && seat.ask === ask && ask !== undefined) {
      seat.isAlone = true
      ask.sent = undefined
      ask.done = 0
    } else if (waiting !== undefined) answer(seat, waiting, Exit.fail(invalid))
    return state.pages.drop(holding)
  }
  const text = ask?.tokens ?? course!.text
  if (isOwn && (ask !== undefined || seat.course === course)) holding.tokens = text.slice(0, end)
  if ("ids" in found && course !== undefined) goOn(state, part, found.ids[0]!)
  if (ask === undefined) return []
  // of the rows it asked for, the first one that is found here
  const first = Math.max(entry.start, ask.tokens.length - ask.rows) - (ask.tokens.length - ask.rows)
  if ("logits" in found) ask.found.set(found.logits, first * state.vocabulary)
  else found.ids.forEach((id, i) => ask.ids[first + i] = id)
  ask.done = end
  if (end === ask.tokens.length) answer(seat, ask, Exit.succeed({ logits: ask.found, ids: ask.ids }))
  return []
}

/** Nobody waits any more: all are told this, and nothing is under way that anyone asks for. */
const refuse = ({ flights, guessing, seats }: State, exit: Exit.Exit<never, BatchError>): void => {
  flights.length = 0
  for (const { answer } of guessing) Deferred.doneUnsafe(answer, exit)
  guessing.clear()
  for (const seat of seats) {
    if (seat.ask !== undefined) Deferred.doneUnsafe(seat.ask.answer, exit)
    seat.ask = undefined
    seat.course = undefined
  }
}

/** A step failed: so did those behind it, as far as anyone knows. */
const fail = (state: State, exit: Exit.Exit<never, BatchError>, parts: ReadonlyArray<Part>): void => {
  const error = Exit.findErrorOption(exit)
  // a defect is one for all who wait; on a lost device nobody's step succeeds: they ask again on the next one
  if (Option.isNone(error)) return refuse(state, exit)
  if (isLost(error.value)) state.lost = error.value
  if (state.lost !== undefined) return refuse(state, Exit.fail(state.lost))
  for (const part of [...parts, ...state.flights.flatMap(({ parts }) => parts)]) {
    const waiting = askOf(part)
    part.seat.course = undefined
    if (waiting !== undefined) answer(part.seat, waiting, exit)
  }
  state.flights.length = 0
}

/** Takes what steps have left that have run to their ends. */
const land = Effect.fnUntraced(function*(state: State) {
  for (let first = state.flights[0]; first?.exit !== undefined; first = state.flights[0]) {
    const { exit, isShared, lines, parts } = first
    state.flights.shift()
    if (state.flights.length === 0) state.idleSince = Number(yield* Clock.currentTimeNanos)
    if (Exit.isFailure(exit)) return fail(state, Exit.failCause(exit.cause), parts)
    const found = foundOf(parts, exit.value, state.vocabulary)
    const cleared = parts.flatMap((part, i) =>
      settle(state, part, { found: found[i]!, isCurrent: lines[i] === part.seat.line, isShared })
    )
    if (cleared.length > 0) yield* Effect.ignore(state.pool.clear(cleared))
  }
})

/** A part is under way, as a token of a step. */
const sent = ({ ask, course, entry, seat }: Part, step: number, row: number): void => {
  if (ask !== undefined) {
    if (ask.sent === undefined) seat.line++
    ask.sent = entry.start + entry.tokens.length
  }
  if (entry.draw !== undefined) seat.course = course
  course?.pending.push({ step, row })
}

/** Submits a step. */
const submit = Effect.fnUntraced(function*(state: State, { copies, kind, parts }: Seats.Planned<BatchError>) {
  const { awake, flights, pool } = state
  const before = Number(yield* Clock.currentTimeNanos)
  const idleMillis = state.idleSince === undefined ? 0 : (before - state.idleSince) / nanosPerMilli
  const tokens = parts.reduce((n, { entry }) => n + entry.tokens.length, 0)
  count(state, { steps: 1, tokens, ahead: flights.length > 0 ? 1 : 0, idleMillis })
  state.idleSince = undefined
  state.last = kind
  for (const { seat } of parts) seat.servedAt = state.counts.steps
  const entries = parts.map(({ entry }) => entry)
  const run = kind === "batch" ? pool.batch(entries) : pool.run(entries)
  const flight: Exit.Exit<Flight, BatchError> = yield* Effect.exit(Effect.andThen(pool.copy(copies), run))
  if (Exit.isFailure(flight)) return fail(state, Exit.failCause(flight.cause), parts)
  let row = 0
  for (const part of parts) {
    sent(part, flight.value.step, row)
    row += part.entry.rows
  }
  const isShared = kind === "batch" && parts.length > 1
  const underWay: UnderWay = { parts, lines: parts.map(({ seat }) => seat.line), isShared, exit: undefined }
  flights.push(underWay)
  const landed = (exit: Exit.Exit<Found, BatchError>): void => {
    underWay.exit = exit
    awake.openUnsafe()
  }
  yield* Effect.forkChild(Effect.onExit(flight.value.found, (exit) => Effect.sync(() => landed(exit))))
  count(state, { submitMillis: (Number(yield* Clock.currentTimeNanos) - before) / nanosPerMilli })
})

/** Whether others would run ahead of a seat whose host is looking at what a step has left it, or will leave it. */
const isLooking = ({ counts }: State, { ask, draws, servedAt }: Seat): boolean =>
  !Seats.isSteady(draws) && !Seats.isUnsent(ask) &&
  (ask !== undefined || servedAt > 0 && counts.steps - servedAt <= fewSteps)

/** Steps that may be under way: one, where a host that looks at every token would wait for more of them. */
const mostFlights = (state: State): number => [...state.seats].some((seat) => isLooking(state, seat)) ? 1 : mostAhead

/** Submits a step, if someone waits for one; whether it did. */
const step = Effect.fnUntraced(function*(state: State) {
  const { flights } = state
  if (state.lost !== undefined || flights.length >= mostFlights(state) || !Seats.isWaiting(state)) return false
  const before = Number(yield* Clock.currentTimeNanos)
  const planned = Seats.next(state)
  count(state, { planMillis: (Number(yield* Clock.currentTimeNanos) - before) / nanosPerMilli })
  if (planned.parts.length > 0) {
    yield* submit(state, planned)
    return true
  }
  if (flights.length === 0) return yield* Effect.die(new Error("a pool without room for one conversation"))
  // what is under way leaves room, or those who asked for it go on
  yield* Effect.ignore(state.pool.copy(planned.copies))
  return false
})

/** What a member asks for. */
type Asked = Pick<Ask, "draw" | "rows" | "tokens">

/** What a seat's course has for it: a token that is there, or one that is on its way, or no more of them; nothing, where it asks for others. */
const onCourse = ({ course }: Seat, { draw, rows, tokens }: Asked): number | "under way" | "over" | undefined => {
  if (course === undefined || draw === undefined || rows > 1 || !Course.continues(course, tokens, draw)) {
    return undefined
  }
  course.asked = Math.max(course.asked, tokens.length)
  return course.text[tokens.length] ?? (course.pending.length > 0 ? "under way" : "over")
}

/** A conversation at a seat. */
const memberAt = (state: State, seat: Seat): Member => {
  const { awake, pages, seats, vocabulary } = state
  const ask = (asked: Asked): Effect.Effect<Seats.Answer, BatchError> =>
    Effect.suspend(() => {
      if (state.lost !== undefined) return Effect.fail(state.lost)
      if (!seats.has(seat)) return Effect.interrupt
      const { draw, rows, tokens } = asked
      const there = onCourse(seat, asked)
      const isStepwise = draw === undefined || draw.mask !== undefined || rows > 1
      seat.draws = isStepwise ? 0 : there === undefined ? Seats.firstDraw(seat) : seat.draws + 1
      if (typeof there !== "number" && there !== "under way") seat.course = undefined
      const found = new Float32Array(draw === undefined ? rows * vocabulary : 0)
      // there may be room for one more step
      awake.openUnsafe()
      if (typeof there === "number") return Effect.succeed({ logits: found, ids: [there] })
      const sent = there === "under way" ? tokens.length : undefined
      const own: Ask = { ...asked, found, ids: [], done: 0, sent, answer: Deferred.makeUnsafe() }
      seat.ask = own
      const forget = Effect.sync(() => {
        if (seat.ask === own) seat.ask = undefined
      })
      return Effect.onInterrupt(Deferred.await(own.answer), () => forget)
    })
  return {
    logits: (tokens, rows = 1) => Effect.map(ask({ tokens, rows, draw: undefined }), ({ logits }) => logits),
    token: (tokens, how) =>
      Effect.map(ask({ tokens, rows: 1, draw: { ...how, position: tokens.length } }), ({ ids }) => ids[0]!),
    tokens: (tokens, rows, how) =>
      Effect.map(ask({ tokens, rows, draw: { ...how, position: tokens.length } }), ({ ids }) => ids),
    predict: (tokens, most) =>
      Effect.suspend(() => {
        if (state.lost !== undefined) return Effect.fail(state.lost)
        if (state.pool.predict === undefined || most < 1) return Effect.succeed([])
        const own: Guesses.Asking<BatchError> = { seat, tokens, most, answer: Deferred.makeUnsafe() }
        state.guessing.add(own)
        awake.openUnsafe()
        return Effect.onInterrupt(Deferred.await(own.answer), () => Effect.sync(() => state.guessing.delete(own)))
      }),
    reusable: (tokens) => {
      const { holding } = seat
      const there = holding === undefined ? pages.shared(tokens) : commonPrefix(holding.tokens, tokens)
      return Math.min(there, tokens.length - 1)
    },
    keep: (count) => {
      seat.course = undefined
      seat.line++
      if (seat.holding !== undefined) pages.keep(seat.holding, count)
    }
  }
}

/** Guesses for all who wait for them, in the same steps. */
const guess = Effect.fnUntraced(function*(state: State) {
  const { guessing, pool } = state
  const asking = [...guessing]
  guessing.clear()
  if (asking.length === 0) return
  const made = yield* Effect.exit(
    Guesses.guess(pool, state.pages, { asking, context: state.context, most: state.room.tokens })
  )
  if (Exit.isSuccess(made)) return count(state, { guesses: 1, guessed: made.value })
  for (const { answer } of asking) Deferred.doneUnsafe(answer, Exit.failCause(made.cause))
  const error = Exit.findErrorOption(made)
  if (Option.isSome(error) && isLost(error.value)) {
    state.lost = error.value
    refuse(state, Exit.fail(error.value))
  }
})

/** One turn: takes what has come back, and submits a step, if there is something to submit. */
const round = Effect.fnUntraced(function*(state: State) {
  const { awake, flights } = state
  const before = Number(yield* Clock.currentTimeNanos)
  yield* awake.await
  if (flights.length > 0) count(state, { waitMillis: (Number(yield* Clock.currentTimeNanos) - before) / nanosPerMilli })
  awake.closeUnsafe()
  const ran = yield* Effect.exit(Effect.gen(function*() {
    yield* land(state)
    for (let i = 0; i < turns; i++) yield* Effect.yieldNow
    yield* guess(state)
    return yield* step(state)
  }))
  // a defect is one for all who wait: nobody is left waiting
  if (Exit.isFailure(ran)) refuse(state, Exit.failCause(ran.cause))
  else if (ran.value) awake.openUnsafe()
})

const nothing: State["counts"] = {
  steps: 0,
  tokens: 0,
  ahead: 0,
  dropped: 0,
  guesses: 0,
  guessed: 0,
  planMillis: 0,
  submitMillis: 0,
  waitMillis: 0,
  idleMillis: 0
}

/** Conversations over a pool, whose steps run in the Scope. */
export const make: (
  pool: Runs,
  options: Pick<State, "context" | "pages" | "room" | "vocabulary">
) => Effect.Effect<Batcher, never, Scope.Scope> = Effect.fnUntraced(function*(pool, options) {
  const state: State = {
    pool,
    ...options,
    seats: new Set(),
    guessing: new Set(),
    flights: [],
    awake: Latch.makeUnsafe(),
    counts: nothing,
    evicted: 0,
    last: "few",
    idleSince: undefined,
    lost: undefined
  }
  const leave = (seat: Seat): void => {
    state.seats.delete(seat)
    seat.course = undefined
    seat.line++
    if (seat.holding !== undefined) state.pages.close(seat.holding)
    seat.holding = undefined
  }
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      refuse(state, Exit.interrupt())
      for (const seat of state.seats) leave(seat)
    })
  )
  yield* Effect.forkScoped(Effect.forever(round(state)))
  const sit = (): Seat => {
    const seat: Seat = {
      holding: undefined,
      ask: undefined,
      course: undefined,
      line: 0,
      draws: 1,
      isAlone: false,
      servedAt: 0
    }
    state.seats.add(seat)
    return seat
  }
  return {
    counts: () => ({ ...state.counts, evicted: state.evicted }),
    join: Effect.map(
      Effect.acquireRelease(Effect.sync(sit), (seat) => Effect.sync(() => leave(seat))),
      (seat) => memberAt(state, seat)
    )
  }
})
