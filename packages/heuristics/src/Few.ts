/**
 * Products of a few tokens with a matrix: the tokens are a short loop of constant trip count. A register tile holds a row for all of
 * them, so that a weight is loaded and unpacked once; of twice as many tokens as it has room for there are two.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { openRanges, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { groupReductions, largestGroup, maxGroup, outermost } from "./Groups.ts"
import { hasManyRegisters, isInt8, tileTokens } from "./Kinds.ts"
import { hasIdleThreads, isFull, nearlyAll } from "./Occupancy.ts"
import { Plan } from "./Plan.ts"
import { freeOutputs, knownOutputs } from "./Outputs.ts"
import { iterations, largestPower } from "./Sizes.ts"
import { loadsOf, vectoriseReductions } from "./Vectors.ts"

/** The register tile of a thread. */
export interface TokenTile {
  readonly tokens: number
  /** Its rows; where it is not said, as many as leave threads enough. */
  readonly rows?: number
  /** Tiles of the same rows, each in workgroups of its own; 1 by default. */
  readonly others?: number
}

/** Whole tiles of so many tokens still count as few. */
const mostTiles = 2
/** Rows, at least: enough parallelism without the tokens. */
const fewestRows = 128

const { manyRegisters: most } = tileTokens
/** What fits a tile, or fills several. */
const areFew = (tokens: number): boolean => tokens <= most || tokens <= mostTiles * most && tokens % most === 0

/** The loop over a few tokens of a product: weights are invariant in it, activations are not. */
export const fewTokens = (kernel: UOp): Loops.Loop | undefined => {
  const free = freeOutputs(kernel)
  // the loops of the index, without those of the gate
  const read = Loops.reductions(kernel).flatMap(loadsOf).map((load) => openRanges(accessOf(load).at))
  return free.find((tokens) => {
    const rows = free.filter((loop) =>
      loop.id !== tokens.id && read.some((open) => open.has(loop.node) && !open.has(tokens.node)) &&
      !read.some((open) => open.has(loop.node) && open.has(tokens.node))
    )
    return areFew(tokens.size) && read.some((open) => open.has(tokens.node)) && iterations(rows) >= fewestRows
  })
}

/**
 * Tokens of a thread where products are of bytes, at least and at most: three vectors of an activation are in flight for each of them. So many threads of the
 * workgroup share the tokens, and unpack the rows again: output of 16 tokens on an H200 takes 12 us, with all 16 in a thread 22.
 */
const tokensOfBytes = { fewest: 4, most: 8, sharers: 4 } as const

/** A quarter of the tokens of one product; of two that read the same activation, as many as there are registers for. */
const tokensOfThread = (kernel: UOp, tokens: number): number => {
  const { fewest, most, sharers } = tokensOfBytes
  return outermost(kernel).length > 1 ? most : Math.min(most, Math.max(fewest, tokens / sharers))
}

const upcast = (plan: Plan, { id }: Loops.Loop, amount: number): number => plan.try(Opt.upcast(id, amount)) ? amount : 1

/**
 * Threads for a row of a few tokens, at least: as many as a power of two are in a subgroup, which adds their sums up. Others exchange one for
 * each token through workgroup memory.
 */
export const fewestOfTokens = 8
/** Threads that share a block of bytes: each loads a vector of its quants. */
export const halves = 2
/** Tokens that one column of results takes, at most. */
const mostOfColumn = 4
/**
 * Tiles of a product of bytes, as [tokens, rows]. Processors wait for their own caches: a vector of quants and its scales are loaded once for the rows of a tile, those of
 * a weight once for its tokens, so a square loads least for its registers. 2048 rows of 5120 and 8 tokens take an H100 8.4 us in squares, 12.3 with a column of 8 tokens, 10.9 with 4 x 2.
 */
const squares: ReadonlyArray<readonly [number, number]> = [[2, 2], [1, 2]]
/** Of four tokens or fewer a column loads as little, and leaves more rows to share its activations: 7.6 us, in squares 8.1. */
const columns: ReadonlyArray<readonly [number, number]> = [[4, 1], [2, 1], [1, 1]]

/** Threads that share a row of bytes. */
const lanesOf = (plan: Plan, profile: DeviceProfile): number => {
  const trial = new Plan(plan.kernel, profile, plan.legal)
  vectoriseReductions(trial)
  groupReductions(trial, maxGroup, { inside: halves, leastPower: fewestOfTokens })
  return largestGroup(trial.kernel)
}

/**
 * The largest tile of one product of bytes that leaves threads enough, where other tokens have workgroups of their own; none where all tokens are best in each thread.
 * 768 rows of 2048 take an H100 4.0 us with one token of 8 for each thread, 6.2 with all; 4 tokens 3.6 and 4.5.
 */
const tileOfBytes = (plan: Plan, { size }: Loops.Loop, profile: DeviceProfile): TokenTile | undefined => {
  if (outermost(plan.kernel).length !== 1 || size < mostOfColumn) return undefined
  const tiles = size > mostOfColumn ? squares : columns
  const threads = knownOutputs(plan.kernel) * lanesOf(plan, profile)
  const enough = nearlyAll * profile.saturatingThreads
  const [tokens, rows] = tiles.find(([own, rows]) => threads / (own * rows) >= enough) ?? tiles.at(-1)!
  return size % tokens !== 0 || tokens === size ? undefined : { tokens, rows }
}

/**
 * A square tile of floats, whose rows are neighbours; none where all tokens fit it, or where a product has so many rows that memory is read for each tile. 8 tokens of
 * GLM-4.7-Flash's value projection take an H100 7.2 us with 4 x 4, 14 with 8 x 4; the query through k_b, whose rows are pairs, 9.1 with 2 x 2, 10.0 with 4 x 2 and 14.5 with 8 x 2.
 */
const tileOfFloats = (plan: Plan, { id, size }: Loops.Loop, profile: DeviceProfile): TokenTile | undefined => {
  const rows = freeOutputs(plan.kernel).findLast((loop) => loop.id !== id)
  if (rows === undefined || isFull(knownOutputs(plan.kernel) / size, profile)) return undefined
  const side = [4, 2].find((n) => rows.size % n === 0 && size % n === 0)
  return side === undefined || side === size ? undefined : { tokens: side, others: size / side }
}

/** Upcasts the few tokens, as far as there are registers; says which tile a thread has, of one token if there is no such loop. */
export const upcastTokens = (plan: Plan, profile: DeviceProfile): TokenTile => {
  const tokens = fewTokens(plan.kernel)
  if (tokens === undefined) return { tokens: 1 }
  const ofMost = (most: number): TokenTile => ({ tokens: upcast(plan, tokens, Math.min(tokens.size, most)) })
  if (!hasManyRegisters(profile)) return ofMost(largestPower(tokens.size, tileTokens.fewRegisters))
  // a batch has threads enough, of other tiles
  if (Loops.outputs(plan.kernel).some((loop) => loop.isSymbolic)) return ofMost(tileTokens.manyRegisters)
  const isBytes = isInt8(plan.kernel)
  // memory is read once for all tokens that there are registers for
  if (isBytes && isFull(knownOutputs(plan.kernel) / tokens.size, profile)) return ofMost(tokensOfBytes.most)
  if (tokens.size <= tokensOfBytes.most) {
    const tile = hasIdleThreads(profile) ? (isBytes ? tileOfBytes : tileOfFloats)(plan, tokens, profile) : undefined
    return tile === undefined
      ? ofMost(tileTokens.manyRegisters)
      : { ...tile, tokens: upcast(plan, tokens, tile.tokens) }
  }
  const each = tokensOfThread(plan.kernel, tokens.size)
  const groups = tokens.size / each
  if (!isBytes || !Number.isInteger(groups)) return ofMost(tileTokens.manyRegisters)
  const taken = upcast(plan, tokens, each)
  if (taken > 1) plan.try(Opt.local(tokens.id, groups))
  return { tokens: taken }
}
