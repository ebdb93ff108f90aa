/** Which tokens the next step takes, of those that conversations wait for: a pure choice. */
import { piece } from "@tg/model-parts/Attention"
import { fullest, type SizeCost } from "./StepCost.ts"

/** What a conversation waits for. */
export interface Waiting {
  /** Tokens that are not computed yet. */
  readonly tokens: number
  /** Behind how many of the last ones logits are wanted. */
  readonly rows: number
  /** The number of the last step that took tokens of it; smaller is longer ago. */
  readonly servedAt: number
  /** Tokens in front of those it waits for; none, if it is not said. */
  readonly behind?: number | undefined
  /** Whether its batches are its own. They are not, if it is not said. */
  readonly isAlone?: boolean | undefined
}

/** What a step is: a few tokens of anyone, or many of prompts. */
export type Kind = "few" | "batch"

/** What a step has room for. */
export interface Room {
  /** Tokens of a step of a few at most. */
  readonly tokens: number
  /** Tokens of prompts that such a step takes while others write: what these wait for at most. */
  readonly chunk: number
  /** What steps of few tokens take, where only some numbers of tokens have a program. */
  readonly costs?: ReadonlyArray<SizeCost> | undefined
  /** Where there are batches. */
  readonly batch?: BatchRoom | undefined
}

/** What batches have room for. */
export interface BatchRoom {
  /** Tokens from which on a batch takes less time than steps of a few. */
  readonly from: number
  /** Tokens of a batch at most. */
  readonly tokens: number
  /** The same while others wait for steps of a few tokens, which come in turns with batches. */
  readonly beside: number
  /** Conversations of a batch at most. */
  readonly most: number
  /** Positions at most that tokens of a batch of several conversations look at: each looks at those of all. */
  readonly positions: number
}

/** What the next step takes. */
export interface Choice {
  readonly kind: Kind
  /** Tokens of each. */
  readonly taken: ReadonlyArray<number>
}

/**
 * Tokens that batches take of what it waits for, the first ones: all but a rest that is too small for one, and rows that are wanted, if
 * these are several. The rest is the same however large the batches are, so that a text does not depend on who waits beside it.
 */
const inBatches = ({ rows, tokens }: Waiting, { batch }: Room): number => {
  if (batch === undefined) return 0
  const most = rows > 1 ? tokens - rows : tokens
  const rest = most % batch.beside
  return Math.max(0, rest < batch.from ? most - rest : most)
}

/**
 * Tokens of each in a batch of so many: of those that have waited longest, and as long as they look at few positions together. A part that
 * does not end what batches take of a conversation is as long as batches are beside others: the rest stays what it is.
 */
const batchOf = (
  waiting: ReadonlyArray<Waiting>,
  long: ReadonlyArray<number>,
  { beside, limit, most, positions: mostPositions }: BatchRoom & { readonly limit: number }
): ReadonlyArray<number> => {
  const taken = waiting.map(() => 0)
  const order = [...waiting.keys()].filter((i) => long[i]! > 0)
    .sort((a, b) => waiting[a]!.servedAt - waiting[b]!.servedAt || a - b)
  let left = limit
  let looked = 0
  let count = 0
  for (const i of order) {
    const { behind = 0, isAlone = false } = waiting[i]!
    const own = long[i]! <= left ? long[i]! : count === 0 ? left : left - left % beside
    const positions = looked + pieces(behind + own) * piece
    if (own === 0 || count > 0 && (isAlone || positions > mostPositions)) continue
    taken[i] = own
    left -= own
    looked = positions
    count++
    if (isAlone || count === most) break
  }
  return taken
}

/** Pieces of the cache that so many tokens take. */
const pieces = (tokens: number): number => Math.ceil(tokens / piece)

/**
 * What the next step takes, after one of the kind `last`. Long prompts take batches, those which have waited longest first; where others
 * wait too, batches and steps of a few tokens come in turns.
 */
export const choose = (waiting: ReadonlyArray<Waiting>, room: Room, last: Kind): Choice => {
  const { batch } = room
  const long = waiting.map((each) => inBatches(each, room))
  const isAlone = long.every((count) => count > 0)
  if (batch === undefined || long.every((count) => count === 0) || !isAlone && last === "batch") {
    return { kind: "few", taken: few(waiting.map((each, i) => long[i]! > 0 ? { ...each, tokens: 0 } : each), room) }
  }
  return { kind: "batch", taken: batchOf(waiting, long, { ...batch, limit: isAlone ? batch.tokens : batch.beside }) }
}

/** Whether it is in the middle of writing: all it waits for are the tokens whose logits it wants. */
const isWriting = ({ rows, tokens }: Waiting): boolean => tokens <= rows

/**
 * How many tokens of each a step of a few takes. Those that have waited longest come first; who writes gets all it waits for, and what
 * is left goes to prompts, piece by piece. Where nobody writes, prompts fill the step; where several do, they take turns if that gives more tokens
 * in the same time.
 */
const few = (waiting: ReadonlyArray<Waiting>, { chunk, costs = [], tokens }: Room): ReadonlyArray<number> => {
  const taken = waiting.map(() => 0)
  const order = [...waiting.keys()].sort((a, b) => waiting[a]!.servedAt - waiting[b]!.servedAt || a - b)
  const prompts = order.filter((i) => !isWriting(waiting[i]!))
  const sumOf = (those: ReadonlyArray<number>): number => those.reduce((sum, i) => sum + waiting[i]!.tokens, 0)
  const written = sumOf(order.filter((i) => isWriting(waiting[i]!)))
  const writers = written > 0
  let left = writers && costs.length > 0
    ? Math.min(tokens, fullest(costs, written + Math.min(chunk, sumOf(prompts))))
    : tokens
  const give = (i: number, most: number): number => {
    const count = Math.max(0, Math.min(waiting[i]!.tokens - taken[i]!, left, most))
    taken[i]! += count
    left -= count
    return count
  }
  // a prompt that has waited longer than a writer is not passed over: it gets a token
  for (const i of order) give(i, isWriting(waiting[i]!) ? Infinity : 1)
  let more = writers ? chunk - prompts.length : Infinity
  for (const i of prompts) more -= give(i, more)
  return taken
}
