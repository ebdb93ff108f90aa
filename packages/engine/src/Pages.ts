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

/** A pool with so many pages, and nothing in it. */
export const make = (total: number): Pages => {
  const holders = new Array<number>(total).fill(0)
  const free = Array.from({ length: total }, (_, i) => total - 1 - i)
  const working = new Set<Holding>()
  // those unused for longest first
  const kept = new Set<Holding>()

  const release = (page: number): boolean => {
    const isLast = --holders[page]! === 0
    if (isLast) free.push(page)
    return isLast
  }

  /** The last page of what is kept for longest; it may have other holders. */
  const giveUpOne = (): boolean => {
    const [oldest] = kept
    if (oldest === undefined) return false
    const page = oldest.pages.pop()
    if (page !== undefined) release(page)
    oldest.tokens = oldest.tokens.slice(0, oldest.pages.length * pageTokens)
    if (oldest.pages.length === 0) kept.delete(oldest)
    return true
  }

  const take = (): number => {
    while (free.length === 0) if (!giveUpOne()) throw new Error("more pages were taken than are available")
    const page = free.pop()!
    holders[page] = 1
    return page
  }

  const available = (without: ReadonlyArray<Holding> = []): number => {
    const others = [...working].filter((holding) => !without.includes(holding))
    return total - new Set(others.flatMap(({ pages }) => pages)).size
  }

  /** Who shares most with these tokens. */
  const nearest = (tokens: ReadonlyArray<number>) => {
    let found: Holding | undefined
    let shared = 0
    for (const holding of [...working, ...kept]) {
      const count = commonPrefix(holding.tokens, tokens)
      if (count > shared) {
        found = holding
        shared = count
      }
    }
    const rest = shared % pageTokens
    const count = rest < fewestCopied ? shared - rest : shared
    return count === 0 ? undefined : { found: found!, count }
  }

  const keep = (holding: Holding, count: number): void => {
    if (count < holding.tokens.length) holding.tokens = holding.tokens.slice(0, count)
    while (holding.pages.length > pagesFor(holding.tokens.length)) release(holding.pages.pop()!)
  }

  return {
    total,
    available,
    shared: (tokens) => nearest(tokens)?.count ?? 0,
    open: (tokens) => {
      const near = nearest(tokens)
      const holding: Holding = { tokens: [], pages: [] }
      working.add(holding)
      if (near === undefined) return { holding, copies: [] }
      const { count, found } = near
      for (const page of found.pages.slice(0, Math.floor(count / pageTokens))) {
        holders[page]!++
        holding.pages.push(page)
      }
      holding.tokens = tokens.slice(0, holding.pages.length * pageTokens)
      if (kept.delete(found)) kept.add(found)
      const last = found.pages[holding.pages.length]
      if (count % pageTokens === 0 || last === undefined || available() === 0) return { holding, copies: [] }
      // taking a page may be what gives up the one to copy: it is copied before anyone writes, or is the one that was taken
      const own = take()
      holding.pages.push(own)
      holding.tokens = tokens.slice(0, count)
      return { holding, copies: own === last ? [] : [{ from: last, to: own }] }
    },
    keep,
    reserve: (holding, from, to) => {
      const first = Math.floor(from / pageTokens)
      const end = pagesFor(to)
      const more = end - holding.pages.length
      const written = holding.pages.slice(first, end)
      const others = new Set([...working].filter((other) => other !== holding).flatMap(({ pages }) => pages))
      if (more + written.filter((page) => others.has(page)).length > available()) return undefined
      // what is shared with kept conversations alone is copied only where there is room for both
      while (more + written.filter((page) => holders[page]! > 1).length > available() && giveUpOne()) { /* again */ }
      const copies: Array<PageCopy> = []
      for (let i = first; i < end; i++) {
        const page = holding.pages[i]
        if (page === undefined) holding.pages.push(take())
        else if (holders[page]! > 1) {
          const own = take()
          holding.pages[i] = own
          release(page)
          copies.push({ from: page, to: own })
        }
      }
      return copies
    },
    close: (holding) => {
      if (!working.delete(holding)) return
      keep(holding, holding.tokens.length)
      const isIn = (a: Holding, b: Holding): boolean => commonPrefix(a.tokens, b.tokens) === a.tokens.length
      const drop = (other: Holding): void => {
        kept.delete(other)
        for (const page of other.pages.splice(0)) release(page)
      }
      for (const other of kept) if (isIn(other, holding)) drop(other)
      if (holding.pages.length === 0 || [...kept].some((other) => isIn(holding, other))) drop(holding)
      else kept.add(holding)
    },
    drop: (holding) => {
      working.delete(holding)
      kept.delete(holding)
      holding.tokens = []
      return holding.pages.splice(0).filter(release)
    }
  }
}
