/** Who takes part in the steps of a pool, what each waits for, and what the next step takes of them, with pages for it. */
import type { Deferred } from "effect"
import * as Course from "./Course.ts"
import type { RowDraw } from "./DrawRows.ts"
import * as Fair from "./Fair.ts"
import { type Holding, type PageCopy, type Pages, pagesFor } from "./Pages.ts"
import type { Entry } from "./Pool.ts"
import { commonPrefix } from "./Tokens.ts"

/** What a seat is answered: the logits it asked for, or the tokens. */
export interface Answer {
  readonly logits: Float32Array
  readonly ids: ReadonlyArray<number>
}

/** What a seat waits for. */
export interface Ask<E> {
  readonly tokens: ReadonlyArray<number>
  readonly rows: number
  /** Where it waits for tokens: how the last one is drawn. No logits are then found. */
  readonly draw: RowDraw | undefined
  /** The logits and the tokens that are there: behind the tokens before this one. */
  readonly found: Float32Array
  readonly ids: Array<number>
  done: number
  /** Tokens of the text that steps have taken, those under way included; nothing, where none has. */
  sent: number | undefined
  readonly answer: Deferred.Deferred<Answer, E>
}

/** A conversation's place. */
export interface Seat<E> {
  holding: Holding | undefined
  ask: Ask<E> | undefined
  course: Course.Course | undefined
  /** Counts what has replaced tokens that steps had taken: what those steps leave is then no longer of the seat. */
  line: number
  /** Tokens that were asked for one behind the other, drawn by the device; 0 where the host looks at each step. */
  draws: number
  servedAt: number
  /** Whether logits of a batch that it shared were no numbers: its own may be, in batches of its own. */
  isAlone: boolean
}

/** A seat's part of a step. */
export interface Part<E> {
  readonly seat: Seat<E>
  /** What it is computed for; nothing, where nobody has asked for it. */
  readonly ask: Ask<E> | undefined
  /** The text that its token goes on with. */
  readonly course: Course.Course | undefined
  readonly holding: Holding
  readonly entry: Entry
}

/** What a step takes, and the copies of pages before it. */
export interface Planned<E> {
  readonly kind: Fair.Kind
  readonly parts: ReadonlyArray<Part<E>>
  readonly copies: ReadonlyArray<PageCopy>
}

/** All seats, and what steps have room for. */
export interface Seats<E> {
  readonly pages: Pages
  readonly room: Fair.Room
  /** Tokens that a conversation may have. */
  readonly context: number
  /** Those who came first are first. */
  readonly seats: Set<Seat<E>>
  /** What the last step was. */
  last: Fair.Kind
  /** How often a conversation gave way because memory was short. */
  evicted: number
}

/** Whether a seat that draws so many tokens one behind the other is expected to go on: who looked at a step before may look at the next. */
export const isSteady = (draws: number): boolean => draws > 1

/** What `draws` becomes where a text is asked for that goes on with no course: one that is new is expected to draw on. */
export const firstDraw = <E>({ course, draws }: Seat<E>): number => course === undefined && draws > 0 ? 2 : 1

/** Whether steps have still to take tokens of it. */
export const isUnsent = <E>(ask: Ask<E> | undefined): ask is Ask<E> =>
  ask !== undefined && (ask.sent === undefined || ask.sent < ask.tokens.length)

/** What a seat's course feeds next, if there is one and nothing else is asked for. It goes no further once its pages are given away. */
const nextOf = <E>({ context }: Seats<E>, { ask, course, draws, holding }: Seat<E>): Course.Next | undefined =>
  course === undefined || holding === undefined || !isSteady(draws) || isUnsent(ask)
    ? undefined
    : Course.nextOf(course, context)

/** Whether a step could take something of someone. */
export const isWaiting = <E>(state: Seats<E>): boolean =>
  [...state.seats].some((seat) => isUnsent(seat.ask) || nextOf(state, seat) !== undefined)

/** Tokens of the text that are there. Those whose logits are wanted, and are not there, are computed in any case. */
const startOf = <E>(holding: Holding, { done, rows, sent, tokens }: Ask<E>): number =>
  sent ?? Math.min(commonPrefix(holding.tokens, tokens), Math.max(done, tokens.length - rows))

/** Its tokens are kept as long as there is room, and computed again when it has room again. What is under way is not lost. */
const evict = <E>(state: Seats<E>, seat: Seat<E>): void => {
  state.pages.close(seat.holding!)
  seat.holding = undefined
  if (isUnsent(seat.ask)) seat.ask.sent = undefined
  state.evicted++
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
const makeRoom = <E>(state: Seats<E>, seat: Seat<E>, { hasRoom, idle, pages }: Need): boolean => {
  const order = [...state.seats]
  const at = order.indexOf(seat)
  const isVictim = (other: Seat<E>, i: number): boolean => i > at || idle && other.ask === undefined && other !== seat
  const victims = order.filter((other, i) => other.holding !== undefined && isVictim(other, i))
  const isEnough = state.pages.available(victims.map(({ holding }) => holding!)) >= pages
  while (!hasRoom()) {
    const victim = isEnough ? victims.pop() : undefined
    if (victim === undefined) return false
    evict(state, victim)
  }
  return true
}

/** A seat of which a step can take tokens, and has pages. */
interface Waiting<E> {
  readonly seat: Seat<E>
  readonly holding: Holding
  /** What is asked for; nothing, where its course goes on by itself. */
  readonly ask: Ask<E> | undefined
  readonly next: Course.Next | undefined
  /** Tokens of its text that steps have taken. */
  readonly start: number
}

/** Those who wait and have pages, or get some: one begins when there is room for all of it, else it would give way again at once. */
const seated = <E>(state: Seats<E>, idle: boolean, copies: Array<PageCopy>): ReadonlyArray<Waiting<E>> => {
  const { pages, seats } = state
  const found: Array<Waiting<E>> = []
  for (const seat of seats) {
    const { ask } = seat
    const next = nextOf(state, seat)
    if (next !== undefined) found.push({ seat, ask: undefined, next, holding: seat.holding!, start: next.position })
    if (!isUnsent(ask)) continue
    if (seat.holding === undefined) {
      const needed = pagesFor(ask.tokens.length)
      const hasRoom = (): boolean => pages.available() >= needed
      if (!makeRoom(state, seat, { idle, hasRoom, pages: needed })) continue
      const opened = pages.open(ask.tokens)
      copies.push(...opened.copies)
      seat.holding = opened.holding
    }
    found.push({ seat, ask, next: undefined, holding: seat.holding, start: startOf(seat.holding, ask) })
  }
  return found
}

/** The pages of these positions for a seat, made its own; nothing, where there is no room for them. */
const reserved = <E>(
  state: Seats<E>,
  { ask, holding, seat, start }: Waiting<E>,
  { end, idle }: { readonly end: number; readonly idle: boolean }
): ReadonlyArray<PageCopy> | undefined => {
  const { pages } = state
  let copies: ReadonlyArray<PageCopy> | undefined
  const hasRoom = (): boolean => (copies = pages.reserve(holding, start, end)) !== undefined
  // for what nobody has asked for nobody gives way
  if (ask === undefined) return hasRoom() ? copies : undefined
  if (ask.sent === undefined) pages.keep(holding, start)
  return makeRoom(state, seat, { idle, hasRoom, pages: pagesFor(end) - holding.pages.length }) ? copies : undefined
}

/** A seat's part of a step that takes so many of its tokens; nothing, where there is no room for them. */
const partOf = <E>(
  state: Seats<E>,
  waiting: Waiting<E>,
  { copies, count, idle }: { readonly count: number; readonly idle: boolean; readonly copies: Array<PageCopy> }
): Part<E> | undefined => {
  const { ask, holding, next, seat, start } = waiting
  const end = start + count
  // one that came later may have given way meanwhile
  if (count === 0 || seat.holding !== holding) return undefined
  const made = reserved(state, waiting, { end, idle })
  if (made === undefined) return undefined
  copies.push(...made)
  const { pages } = holding
  if (ask === undefined) {
    const { from, token } = next!
    const course = seat.course!
    const entry: Entry = { tokens: [token], from, start, pages, rows: 1, draw: Course.drawAt(course, end) }
    return { seat, ask, course, holding, entry }
  }
  const { draw, rows, tokens } = ask
  const wanted = Math.max(0, end - Math.max(start, tokens.length - rows))
  const entry: Entry = { tokens: tokens.slice(start, end), start, pages, rows: wanted }
  if (wanted === 0 || draw === undefined) return { seat, ask, course: undefined, holding, entry }
  const course = draw.mask === undefined && rows === 1 ? Course.begin(draw.sampling, tokens) : undefined
  return { seat, ask, course, holding, entry: { ...entry, draw: { ...draw, position: end } } }
}

/** What the next step takes of each, and the copies of pages before it. */
const planned = <E>(state: Seats<E>, idle: boolean): Planned<E> => {
  const copies: Array<PageCopy> = []
  let waiting = seated(state, idle, copies)
  while (waiting.length > 0) {
    const asked = waiting.map(({ ask, seat: { isAlone, servedAt }, start }): Fair.Waiting => ({
      tokens: ask === undefined ? 1 : ask.tokens.length - start,
      rows: ask?.rows ?? 1,
      behind: start,
      isAlone,
      servedAt
    }))
    const { kind, taken } = Fair.choose(asked, state.room, state.last)
    const parts = waiting.flatMap((each, i) => partOf(state, each, { copies, count: taken[i]!, idle }) ?? [])
    // who is in it may have given way to one that came earlier
    const there = parts.filter(({ holding, seat }) => seat.holding === holding)
    if (there.length > 0) return { kind, parts: there, copies }
    // for those there is no room at the moment, and maybe for others
    waiting = waiting.filter(({ holding, seat }, i) => taken[i] === 0 && seat.holding === holding)
  }
  return { kind: "few", parts: [], copies }
}

/** What the next step takes: of those who came first, or, where that is nothing, of whoever waits. */
export const next = <E>(state: Seats<E>): Planned<E> => {
  const first = planned(state, false)
  if (first.parts.length > 0) return first
  const second = planned(state, true)
  return { ...second, copies: [...first.copies, ...second.copies] }
}
