/** What a session's caches still hold: those with a window forget what is behind it. */
import { type Ring, ringTokens } from "@tg/model-parts/Attention"
import type { Storage } from "@tg/model-parts/Family"

/** The ring of caches that forget; nothing where all keep every position. */
export const ringOf = (storage: ReadonlyArray<Storage>): Ring | undefined =>
  storage.find(({ ring }) => ring !== undefined)?.ring

/**
 * How many of the first `count` positions can be gone on behind, where those before `forgotten` are gone from rings: all of
 * them, if the window of the next one is there, or none.
 */
export const usable = (ring: Ring | undefined, forgotten: number, count: number): number =>
  forgotten === 0 || ring !== undefined && Math.max(0, count - ring.window + 1) >= forgotten ? count : 0

/** What is gone from a ring after a step that puts so many tokens behind the first `start` ones. */
export const afterStep = (
  ring: Ring | undefined,
  forgotten: number,
  { start, tokens }: { readonly start: number; readonly tokens: number }
): number => {
  // from the beginning on, all rows are written before they are looked at
  const before = start === 0 ? 0 : forgotten
  if (ring === undefined) return before
  const written = Math.min(tokens, ring.positions - start % ring.positions)
  return Math.max(before, start + written - ring.positions)
}

/** Rows of a cache that hold the first `count` positions. */
export const rowsOf = ({ ring }: Storage, forgotten: number, count: number): number =>
  ring === undefined || forgotten === 0 || count === 0 ? count : ring.positions

/** The pieces that `count` tokens from position `start` are processed in: none crosses the end of a ring. */
export const pieces = (
  start: number,
  count: number,
  { chunk, ring }: { readonly chunk: number; readonly ring?: Ring | undefined }
): ReadonlyArray<{ readonly start: number; readonly length: number }> => {
  const most = ring === undefined ? chunk : Math.min(chunk, ringTokens(ring))
  const made: Array<{ readonly start: number; readonly length: number }> = []
  for (let at = start; at < start + count;) {
    const left = ring === undefined ? Infinity : ring.positions - at % ring.positions
    const length = Math.min(most, left, start + count - at)
    made.push({ start: at, length })
    at += length
  }
  return made
}
