/**
 * Products of a few tokens with a matrix: the tokens are a short loop of constant trip count. A register tile holds a row for all of
 * them, so that a weight is loaded and unpacked once; of twice as many tokens as it has room for there are two.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { openRanges, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { outermost } from "./Groups.ts"
import { hasManyRegisters, isInt8, tileTokens } from "./Kinds.ts"
import type { Plan } from "./Plan.ts"
import { freeOutputs } from "./Outputs.ts"
import { iterations, largestPower } from "./Sizes.ts"
import { loadsOf } from "./Vectors.ts"

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

/** Upcasts the few tokens, as far as there are registers; returns the number of tokens of a thread, 1 if there is no such loop. */
export const upcastTokens = (plan: Plan, profile: DeviceProfile): number => {
  const tokens = fewTokens(plan.kernel)
  if (tokens === undefined) return 1
  if (!hasManyRegisters(profile)) return upcast(plan, tokens, largestPower(tokens.size, tileTokens.fewRegisters))
  const isWide = tokens.size > tokensOfBytes.most
  const each = tokensOfThread(plan.kernel, tokens.size)
  const groups = tokens.size / each
  // a batch has threads enough, of other tiles
  const isBatch = Loops.outputs(plan.kernel).some((loop) => loop.isSymbolic)
  if (isBatch || !isWide || !Number.isInteger(groups) || !isInt8(plan.kernel)) {
    return upcast(plan, tokens, Math.min(tokens.size, tileTokens.manyRegisters))
  }
  const taken = upcast(plan, tokens, each)
  if (taken > 1) plan.try(Opt.local(tokens.id, groups))
  return taken
}
