/** Which of several kept conversations a request goes on with: a pure choice. */
import { commonPrefix } from "./Tokens.ts"

/** A conversation that is kept. */
export interface Kept {
  readonly tokens: ReadonlyArray<number>
  /** Whether a request has it. Its tokens may be copied, but nothing else. */
  readonly isBusy: boolean
  /** When it was last used; smaller is longer ago. */
  readonly usedAt: number
}

/** What is not kept yet, but has room to be. */
export const another = "another"

/** Where a request goes: the number of a kept conversation, or another one. */
export type Place = number | typeof another

/** `stay`: go on there. `branch`: begin in `place` with a copy of what `from` shares. `fresh`: begin in `place`. */
export type Placement =
  | { readonly kind: "stay" | "fresh"; readonly place: Place }
  | { readonly kind: "branch"; readonly place: Place; readonly from: number }

/** Sharing fewer tokens with a conversation is sharing nothing: the marks in front of any message are as many. */
export const fewest = 8
/** A tail of so many tokens is not worth a conversation of its own: they are computed again as fast as rows are copied. */
export const shortTail = 64

/**
 * The place of a prompt; nothing where all are busy and there is no other. It goes on in the idle conversation with the longest
 * common prefix, of equal ones the least recently used, unless that destroys a long tail while there is a free place for a
 * copy, or a tail longer than what is shared. A request that shares little takes a free place, or the least recently used.
 */
export const place = (
  kept: ReadonlyArray<Kept>,
  prompt: ReadonlyArray<number>,
  { canOpen }: { readonly canOpen: boolean }
): Placement | undefined => {
  const shared = kept.map(({ tokens }) => commonPrefix(tokens, prompt))
  const byAge = [...kept.keys()].sort((a, b) => kept[a]!.usedAt - kept[b]!.usedAt)
  const idle = byAge.filter((i) => !kept[i]!.isBusy)
  const free: Place | undefined = idle.find((i) => kept[i]!.tokens.length === 0) ?? (canOpen ? another : undefined)
  const oldest: Place | undefined = free ?? idle[0]
  if (oldest === undefined) return undefined
  // a stable sort: of equal ones those that are idle, then those unused for longest
  const best = [...idle, ...byAge.filter((i) => kept[i]!.isBusy)].sort((a, b) => shared[b]! - shared[a]!)[0]
  if (best === undefined || shared[best]! < fewest) return { kind: "fresh", place: oldest }
  const tail = kept[best]!.tokens.length - shared[best]!
  const isWorthKeeping = free === undefined ? tail > shared[best]! : tail > shortTail
  if (!kept[best]!.isBusy && !isWorthKeeping) return { kind: "stay", place: best }
  const target = free ?? idle.find((i) => i !== best)
  return target === undefined ? { kind: "stay", place: best } : { kind: "branch", place: target, from: best }
}
