/** Byte-pair merging of one piece. */
import { pop, push } from "./heap.ts"
import { find, type Merges } from "./merges.ts"

/** Longest piece that is merged by linear scans; longer ones use a heap. */
const shortPiece = 48

/**
 * Work space for pieces, grown on demand. Symbol `i` covers the bytes from `i` to `next[i]`; merged-away symbols are
 * unlinked. `slot[i]` is the entry of the pair that begins at `i`, or -1. `scan` keeps live symbols packed instead.
 */
export interface Workspace {
  bytes: Uint8Array
  symbol: Int32Array
  start: Int32Array
  slot: Int32Array
  next: Int32Array
  previous: Int32Array
  heap: Float64Array
}

/** Work space for pieces of some length. */
export const workspace = (length: number): Workspace => ({
  bytes: new Uint8Array(length),
  symbol: new Int32Array(length + 1),
  start: new Int32Array(length + 1),
  slot: new Int32Array(length + 1),
  next: new Int32Array(length + 1),
  previous: new Int32Array(length + 1),
  heap: new Float64Array(3 * length + 3)
})

/**
 * Joins adjacent symbols, smallest rank first and leftmost on ties, until no pair is in the table. Begins with the
 * `count` symbols in `symbol`, one per byte; leaves the rest in `symbol` and their first bytes in `start`, ended by
 * `start[count]`; returns how many are left.
 */
export const merge = (merges: Merges, work: Workspace, count: number): number => {
  const left = count <= shortPiece ? scan(merges, work, count) : drain(merges, work, count)
  work.start[left] = count
  return left
}

const scan = (merges: Merges, { slot, start, symbol }: Workspace, count: number): number => {
  const { rank, result } = merges
  for (let i = 0; i < count; i++) {
    start[i] = i
    slot[i] = i + 1 < count ? find(merges, symbol[i]!, symbol[i + 1]!) : -1
  }
  for (;;) {
    let best = -1
    let bestRank = 0x7fffffff
    for (let i = 0; i + 1 < count; i++) {
      const entry = slot[i]!
      if (entry >= 0 && rank[entry]! < bestRank) {
        bestRank = rank[entry]!
        best = i
      }
    }
    if (best < 0) return count
    symbol[best] = result[slot[best]!]!
    count -= 1
    for (let i = best + 1; i < count; i++) {
      symbol[i] = symbol[i + 1]!
      start[i] = start[i + 1]!
      slot[i] = slot[i + 1]!
    }
    slot[best] = best + 1 < count ? find(merges, symbol[best]!, symbol[best + 1]!) : -1
    if (best > 0) slot[best - 1] = find(merges, symbol[best - 1]!, symbol[best]!)
  }
}

// A heap entry is rank * 2^32 + position: ranks stay under 2^21, so the sum is exact and sorts in the order of merging.
const positions = 2 ** 32

const drain = (merges: Merges, { heap, next, previous, slot, start, symbol }: Workspace, count: number): number => {
  const { rank, result } = merges
  let size = 0
  const pair = (at: number): void => {
    const after = next[at]!
    const entry = after < count ? find(merges, symbol[at]!, symbol[after]!) : -1
    slot[at] = entry
    if (entry >= 0) size = push(heap, size, rank[entry]! * positions + at)
  }
  for (let i = 0; i < count; i++) {
    next[i] = i + 1
    previous[i] = i - 1
  }
  for (let i = 0; i < count; i++) pair(i)
  while (size > 0) {
    const key = heap[0]!
    size = pop(heap, size)
    const at = key % positions
    const entry = slot[at]!
    if (entry < 0 || rank[entry] !== (key - at) / positions) continue // the pair has changed since
    const gone = next[at]!
    const after = next[gone]!
    symbol[at] = result[entry]!
    slot[gone] = -1
    next[at] = after
    if (after < count) previous[after] = at
    pair(at)
    if (previous[at]! >= 0) pair(previous[at]!)
  }
  let left = 0
  for (let i = 0; i < count; i = next[i]!) {
    symbol[left] = symbol[i]!
    start[left++] = i
  }
  return left
}
