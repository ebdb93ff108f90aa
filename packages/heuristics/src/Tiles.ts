/**
 * Kernels over tiles of tokens: the store is contiguous along a short loop of tokens, inside of a symbolic number of tiles. Register
 * tiling: a thread computes a tile of tokens and rows of a product, so that an unpacked weight is reused for several tokens and an
 * activation for several rows.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { stepOf } from "@tg/pattern-matcher/Affine"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { groupInnermost, isOutermost, outermost } from "./Groups.ts"
import { hasManyRegisters, isInt8, keptThreads } from "./Kinds.ts"
import type { Plan } from "./Plan.ts"
import { iterations, largestDivisor, largestPower } from "./Sizes.ts"
import {
  dependsOn,
  indexOf,
  isFree,
  piecePositions,
  placeOf,
  type Product,
  productOf,
  readLoop,
  tileTokens,
  tokenLoop,
  unroll
} from "./TileLoops.ts"
import { lanes } from "./Vectors.ts"

export { tokenLoop } from "./TileLoops.ts"

/** A register tile: its results, and the most copies of the loop's body after unrolling. */
interface Tile {
  readonly tokens: number
  readonly rows: number
  readonly copies: number
}
const largeTile: Tile = { tokens: 16, rows: 4, copies: 256 }
const smallTile: Tile = { tokens: 4, rows: 2, copies: 32 }
/**
 * Tiles where nothing is unpacked and registers are many: smaller ones give a higher occupancy. 512 tokens on an H200: gate and
 * up in bytes (12288 rows of 2048) 0.37 ms, with tiles of 16 tokens 0.71; scores of 4160 positions 0.20, then 0.34.
 */
const byteTile: Tile = { tokens: 8, rows: 4, copies: 256 }
const floatTile: Tile = { tokens: 4, rows: 4, copies: 256 }
const tileFor = (profile: DeviceProfile): Tile => hasManyRegisters(profile) ? largeTile : smallTile
/** Threads of a workgroup, which read the same activations. */
const workgroup = 128
/**
 * Threads that split a reduction do not share their loads of activations: a pair of them costs little (20 TFLOP/s instead of 21 alone,
 * and 10 with four on an H200), more pay only below this fraction of the saturating threads.
 */
const pair = 2
/** Neighbouring threads that compute neighbouring rows. */
const neighbours = 16
const fewThreads = 16
/** Most threads for one reduction of a product, and of a sum over features, whose results are few. */
const maxGroup = 32
const maxSumGroup = 256

/** Sums of fewer terms stay in one thread. */
const shortSum = 8

const withId = (kernel: UOp, id: number): Loops.Loop | undefined =>
  Loops.outputs(kernel).find((loop) => loop.id === id && loop.axis === "GLOBAL")

/** Outputs that have no opt yet. */
const outputsOf = (kernel: UOp): number => iterations(Loops.outputs(kernel).filter((l) => l.axis === "GLOBAL"))

/** Splits the reductions over up to `most` threads, outer loops first, until there are `threads` of them. */
const group = (plan: Plan, { most, threads }: { readonly most: number; readonly threads: number }): number => {
  let shared = 1
  for (const reduction of Loops.reductions(plan.kernel)) {
    let left = 1
    while (left < most && outputsOf(plan.kernel) * left < threads) left *= 2
    let own = 1
    for (const loop of Loops.loopsOf(reduction).filter((l) => l.axis === "REDUCE" && !l.isSymbolic)) {
      const amount = largestPower(loop.size, left)
      if (plan.try(Opt.group(loop.id, amount))) {
        left /= amount
        own *= amount
      }
    }
    shared = Math.max(shared, own)
    // reductions over the same loops are grouped together
    if (own > 1) break
  }
  return shared
}

/** Threads along loops of outputs, inner ones first. */
const local = (plan: Plan, ids: ReadonlyArray<number>, most: number): void => {
  let left = most
  for (const id of ids) {
    const loop = withId(plan.kernel, id)
    if (loop === undefined) continue
    const amount = largestDivisor(loop.size, left)
    if (plan.try(Opt.local(id, amount))) left = Math.floor(left / amount)
  }
}

/** Weights in a word from which on they count as packed: halves do not. */
const fewestPacked = 4

/** Whether words hold many weights of a row: a reduction runs over them, in which the load is invariant. */
const isPacked = (kernel: UOp, weights: ReadonlyArray<UOp>): boolean =>
  Loops.reductions(kernel).some((r) =>
    weights.length > 0 &&
    iterations(Loops.loopsOf(r).filter((loop) => !weights.some((w) => dependsOn(w, loop)))) >= fewestPacked
  )

/**
 * Packed weights where registers are many: neighbouring threads compute neighbouring rows, so a thread's own rows are apart; pairs of
 * threads take the halves of a block. Workgroups are small: 1.09 ms, where 128 threads with neighbouring rows of their own take 1.28
 * (6144 rows of 2048, gate and up, 512 tokens, on an H200), and a seventh to a quarter less elsewhere.
 */
const sharePacked = (plan: Plan, row: Loops.Loop, mine = 1): void => {
  plan.try(Opt.local(row.id, largestPower(row.size / mine, neighbours)))
  plan.try(Opt.upcast(row.id, mine))
  for (const reduction of Loops.reductions(plan.kernel)) {
    const serial = Loops.loopsOf(reduction).filter((l) => l.axis === "REDUCE" && !l.isSymbolic && l.size % pair === 0)
    if (plan.try(Opt.group((serial[1] ?? serial[0])?.id ?? -1, pair))) break
  }
  const rest = withId(plan.kernel, row.id)
  if (rest !== undefined) plan.try(Opt.local(row.id, largestPower(rest.size, pair)))
}

/** Rows of a workgroup; most threads for a reduction, while tiles are fewer than this fraction of the saturating threads. */
const rowsTogether = 32
/**
 * Threads of a workgroup at most, where many share each sum: a router's 64 rows for 16 tokens would be one workgroup of 1024, and 32 of them leave processors idle (512
 * tokens of GLM-4.7-Flash on an H100: 80 us, 60 with four times as many workgroups).
 */
const mostThreads = 256
const mostShared = 64
const fewTiles = 3

/** A product that unpacks nothing, where registers are many: tiles of neighbouring tokens and rows. */
const productUnpacked = (plan: Plan, profile: DeviceProfile, tokens: Loops.Loop, { rows, weights }: Product): void => {
  const tile = isInt8(plan.kernel) ? byteTile : floatTile
  const row = rows.find((loop) => loop.size % lanes === 0) ?? rows[0]!
  plan.try(Opt.upcast(tokens.id, lanes))
  plan.try(Opt.upcast(tokens.id, tile.tokens / lanes))
  plan.try(
    Opt.upcast(row.id, largestPower(row.size, Math.max(1, Math.floor(tile.rows / outermost(plan.kernel).length))))
  )
  let left = mostShared
  while (left > 1 && outputsOf(plan.kernel) * left / 2 >= profile.saturatingThreads / fewTiles) left /= 2
  groupInnermost(plan, outermost(plan.kernel)[0]!, left)
  local(plan, [tokens.id], tile.tokens)
  const shared = Loops.threads(plan.kernel)
  const together = shared < workgroup ? Math.min(rowsTogether, Math.floor(mostThreads / shared)) : 1
  local(plan, rows.map((l) => l.id), together)
  const others = Loops.outputs(plan.kernel).filter((l) => isFree(l) && !rows.some((r) => r.id === l.id)).reverse()
  local(plan, others.map((l) => l.id), Math.floor(workgroup / Loops.threads(plan.kernel)))
  const inner = Loops.reductions(plan.kernel).filter((r) => !isOutermost(plan.kernel, r)).flatMap(Loops.loopsOf)
  if (inner.length === 0) return unroll(plan, tile.copies, (kernel) => productOf(kernel, tokens)?.weights ?? weights)
  // unroll the block's dot product, and two blocks, for more loads in flight
  for (const loop of inner.toReversed()) plan.try(Opt.unroll(loop.id, loop.size))
  const blocks = Loops.loopsOf(outermost(plan.kernel)[0]!).findLast((l) => l.axis === "REDUCE" && !l.isSymbolic)
  if (blocks !== undefined) plan.try(Opt.unroll(blocks.id, pair))
}

const product = (plan: Plan, profile: DeviceProfile, tokens: Loops.Loop, { rows, weights }: Product): void => {
  if (hasManyRegisters(profile) && !isPacked(plan.kernel, weights)) {
    return productUnpacked(plan, profile, tokens, { rows, weights })
  }
  const threads = profile.saturatingThreads / keptThreads
  const sums = Loops.reductions(plan.kernel).length
  const tile = tileFor(profile)
  plan.try(Opt.upcast(tokens.id, lanes))
  plan.try(Opt.upcast(tokens.id, largestPower(tokens.size / lanes, tile.tokens / lanes)))
  // vectorise along rows that are contiguous in memory
  const row =
    rows.find((loop) => loop.size % lanes === 0 && weights.some((w) => stepOf(indexOf(w), loop.node) === 1)) ??
      rows.find((loop) => loop.size % lanes === 0) ?? rows[0]!
  const mine = [tile.rows, tile.rows / 2].find((n) =>
    row.size % n === 0 && n * sums <= tile.rows && outputsOf(plan.kernel) / n * maxGroup >= threads
  )
  if (hasManyRegisters(profile)) {
    sharePacked(plan, row, mine)
    unroll(plan, tile.copies, (kernel) => productOf(kernel, tokens)?.weights ?? weights)
    return
  }
  if (mine !== undefined) plan.try(Opt.upcast(row.id, mine))
  const fewest = Math.max(outputsOf(plan.kernel) * pair, profile.saturatingThreads / fewThreads)
  const shared = group(plan, { most: maxGroup, threads: Math.min(threads, fewest) })
  const others = Loops.outputs(plan.kernel).filter((l) => isFree(l) && !rows.some((r) => r.id === l.id)).reverse()
  local(
    plan,
    [...rows, ...others].map((l) => l.id),
    Math.floor(Math.min(workgroup, profile.maxWorkgroupThreads) / shared)
  )
  unroll(plan, tile.copies, (kernel) => productOf(kernel, tokens)?.weights ?? weights)
}

/** Elementwise kernels, and reductions over the features of a token. */
const each = (plan: Plan, profile: DeviceProfile, tokens: Loops.Loop): void => {
  const isSum = Loops.reductions(plan.kernel).length > 0
  plan.try(Opt.upcast(tokens.id, lanes))
  const aside = tokens.size / lanes
  const shared = isSum
    ? group(plan, {
      most: Math.min(maxSumGroup, Math.floor(profile.maxWorkgroupThreads / aside)),
      threads: profile.saturatingThreads / 2
    })
    : 1
  const others = Loops.outputs(plan.kernel).filter((l) => isFree(l) && l.id !== tokens.id).reverse()
  local(plan, [tokens.id, ...others.map((l) => l.id)], Math.max(aside, Math.floor(workgroup / shared)))
  unroll(plan, tileFor(profile).copies, () => [])
}

/** Whether the kernel transposes tiles: features of a token are contiguous in the store, and reductions are short. */
const isCopyOfTiles = (kernel: UOp): boolean => {
  const outputs = Loops.outputs(kernel)
  const at = placeOf(kernel)
  const steps = outputs.map((loop) => stepOf(at, loop.node))
  return outputs.some((tiles, i) =>
    tiles.isSymbolic &&
    outputs.some((tokens, j) =>
      isFree(tokens) && tokens.size === tileTokens && steps[i] === tokens.size * (steps[j] ?? 0)
    )
  ) && Loops.reductions(kernel).every((r) => iterations(Loops.loopsOf(r)) < shortSum)
}

/** Chooses for a kernel over tiles of tokens; returns whether it is one. */
export const chooseTiles = (plan: Plan, profile: DeviceProfile): boolean => {
  const tokens = tokenLoop(plan.kernel)
  if (tokens === undefined) {
    const loop = tokenLoop(plan.kernel, piecePositions) ?? readLoop(plan.kernel)
    const made = loop === undefined ? undefined : productOf(plan.kernel, loop)
    if (made !== undefined) {
      product(plan, profile, loop!, made)
      return true
    }
    if (!isCopyOfTiles(plan.kernel)) return false
    local(plan, Loops.outputs(plan.kernel).filter(isFree).map((l) => l.id).reverse(), workgroup)
    return true
  }
  const made = productOf(plan.kernel, tokens)
  if (made === undefined) each(plan, profile, tokens)
  else product(plan, profile, tokens, made)
  return true
}
