/**
 * Whose tokens the pieces of a pool hold. A piece has `pageTokens` neighbouring positions. Conversations that begin with the same
 * tokens share pieces; whoever writes into a shared one gets a copy first. What ended conversations leave behind is kept, and
 * given up when memory is short, that unused for longest first, its last tokens first.
 */
import { piece } from "@tg/model-parts/Attention"
import { commonPrefix } from "./Tokens.ts"

/** Positions of a page. */
export const pageTokens = piece

/** Sharing fewer tokens of a page than this is not worth a copy of it. */
const fewestCopied = 8

/** What a conversation has of the pool. */
export interface Holding {
  /** Tokens whose rows are there. */
  tokens: ReadonlyArray<number>
  /** Pages in the order of their positions. */
  readonly pages: Array<number>
}

/** A page whose rows have to be copied before anything is written. */
export interface PageCopy {
  readonly from: number
  readonly to: number
}

/** The pages of a pool. All functions are immediate: what a `PageCopy` says is to be done before the next step. */
export interface Pages {
  readonly total: number
  /** Pages that nobody who is at work holds; as if these were not at work, too. */
  readonly available: (without?: ReadonlyArray<Holding>) => number
  /** Tokens at the beginning of these whose rows are there, and need not be computed. */
  readonly shared: (tokens: ReadonlyArray<number>) => number
  /** A holding that begins with as much of these tokens as is there. */
  readonly open: (
    tokens: ReadonlyArray<number>
  ) => { readonly holding: Holding; readonly copies: ReadonlyArray<PageCopy> }
  /** Holds no more than the first so many tokens. */
  readonly keep: (holding: Holding, count: number) => void
  /**
   * Makes the pages of positions `from` to `to` (not included) the holding's own, to be written; `undefined`, and nothing
   * changed, where there are not enough pages.
   */
  readonly reserve: (holding: Holding, from: number, to: number) => ReadonlyArray<PageCopy> | undefined
  /** The conversation is over, or has to give way: its tokens are kept as long as nobody needs the room. */
  readonly close: (holding: Holding) => void
  /** Gives up what it holds; answers with the pages that nobody else has. */
  readonly drop: (holding: Holding) => ReadonlyArray<number>
}

/** Pages that so many tokens take. */
export const pagesFor = (tokens: number): number => Math.ceil(tokens / pageTokens)

/** Whose the pages are. */
interface State {
  readonly total: number
  /** How many hold each page. */
  readonly holders: Array<number>
  readonly free: Array<number>
  readonly working: Set<Holding>
  /** What ended conversations have left, that unused for longest first. */
  readonly kept: Set<Holding>
}

/** Whether nobody has the page any more. */
const release = ({ free, holders }: State, page: number): boolean => {
  const isLast = --holders[page]! === 0
  if (isLast) free.push(page)
  return isLast
}

/** Gives up the last page of what is kept for longest, which may have other holders; `false` where nothing is kept. */
const giveUpOne = (state: State): boolean => {
  const [oldest] = state.kept
  if (oldest === undefined) return false
  const page = oldest.pages.pop()
  if (page !== undefined) release(state, page)
  oldest.tokens = oldest.tokens.slice(0, oldest.pages.length * pageTokens)
  if (oldest.pages.length === 0) state.kept.delete(oldest)
  return true
}

/** A page that nobody holds. Whoever takes it has seen that one is available. */
const take = (state: State): number => {
  while (state.free.length === 0) {
    if (!giveUpOne(state)) throw new Error("more pages were taken than are available")
  }
  const page = state.free.pop()!
  state.holders[page] = 1
  return page
}

const available = ({ total, working }: State, without: ReadonlyArray<Holding> = []): number => {
  const others = [...working].filter((holding) => !without.includes(holding))
  return total - new Set(others.flatMap(({ pages }) => pages)).size
}

/** Who shares most with these tokens, and how much of it is worth having. */
const nearest = ({ kept, working }: State, tokens: ReadonlyArray<number>) => {
  let found: Holding | undefined
  let shared = 0
  for (const holding of [...working, ...kept]) {
    const count = commonPrefix(holding.tokens, tokens)
    if (count <= shared) continue
    found = holding
    shared = count
  }
  const rest = shared % pageTokens
  const count = rest < fewestCopied ? shared - rest : shared
  return found === undefined || count === 0 ? undefined : { found, count }
}

const open = (state: State, tokens: ReadonlyArray<number>): ReturnType<Pages["open"]> => {
  const { holders, kept, working } = state
  const near = nearest(state, tokens)
  const holding: Holding = { tokens: [], pages: [] }
  working.add(holding)
  if (near === undefined) return { holding, copies: [] }
  const { count, found } = near
  const whole = found.pages.slice(0, Math.floor(count / pageTokens))
  for (const page of whole) holders[page]!++
  holding.pages.push(...whole)
  holding.tokens = tokens.slice(0, whole.length * pageTokens)
  // it is of use again
  if (kept.delete(found)) kept.add(found)
  const last = found.pages[whole.length]
  if (count % pageTokens === 0 || last === undefined || available(state) === 0) return { holding, copies: [] }
  // taking a page may be what gives up the one to copy: it is copied before anyone writes, or is the one that was taken
  const own = take(state)
  holding.pages.push(own)
  holding.tokens = tokens.slice(0, count)
  return { holding, copies: own === last ? [] : [{ from: last, to: own }] }
}

const keep = (state: State, holding: Holding, count: number): void => {
  if (count < holding.tokens.length) holding.tokens = holding.tokens.slice(0, count)
  while (holding.pages.length > pagesFor(holding.tokens.length)) release(state, holding.pages.pop()!)
}

const reserve = (
  state: State,
  holding: Holding,
  { from, to }: { readonly from: number; readonly to: number }
): ReadonlyArray<PageCopy> | undefined => {
  const { holders, working } = state
  const first = Math.floor(from / pageTokens)
  const end = pagesFor(to)
  const more = end - holding.pages.length
  const written = holding.pages.slice(first, end)
  // the usual case, in which the page of the last token has room for the next
  if (more <= 0 && written.every((page) => holders[page] === 1)) return []
  const others = new Set([...working].filter((other) => other !== holding).flatMap(({ pages }) => pages))
  if (more + written.filter((page) => others.has(page)).length > available(state)) return undefined
  // what is shared with kept conversations alone is copied only where there is room for both
  const needed = (): number => more + written.filter((page) => holders[page]! > 1).length
  while (needed() > available(state) && giveUpOne(state)) { /* until it fits */ }
  const copies: Array<PageCopy> = []
  for (let i = first; i < end; i++) {
    const page = holding.pages[i]
    if (page === undefined) holding.pages.push(take(state))
    else if (holders[page]! > 1) {
      const own = take(state)
      holding.pages[i] = own
      release(state, page)
      copies.push({ from: page, to: own })
    }
  }
  return copies
}

const drop = (state: State, holding: Holding): ReadonlyArray<number> => {
  state.working.delete(holding)
  state.kept.delete(holding)
  holding.tokens = []
  return holding.pages.splice(0).filter((page) => release(state, page))
}

const close = (state: State, holding: Holding): void => {
  const { kept, working } = state
  if (!working.delete(holding)) return
  keep(state, holding, holding.tokens.length)
  const isIn = (a: Holding, b: Holding): boolean => commonPrefix(a.tokens, b.tokens) === a.tokens.length
  for (const other of kept) if (isIn(other, holding)) drop(state, other)
  if (holding.pages.length === 0 || [...kept].some((other) => isIn(holding, other))) drop(state, holding)
  else kept.add(holding)
}

/** A pool with so many pages, and nothing in it. */
export const make = (total: number): Pages => {
  const state: State = {
    total,
    holders: new Array<number>(total).fill(0),
    free: Array.from({ length: total }, (_, i) => total - 1 - i),
    working: new Set(),
    kept: new Set()
  }
  return {
    total,
    available: (without) => available(state, without),
    shared: (tokens) => nearest(state, tokens)?.count ?? 0,
    open: (tokens) => open(state, tokens),
    keep: (holding, count) => keep(state, holding, count),
    reserve: (holding, from, to) => reserve(state, holding, { from, to }),
    close: (holding) => close(state, holding),
    drop: (holding) => drop(state, holding)
  }
}
