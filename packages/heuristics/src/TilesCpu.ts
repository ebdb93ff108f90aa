/** Kernels over tiles of tokens, on a CPU. */
import type { UOp } from "@tg/core-uop/UOp"
import { stepOf } from "@tg/pattern-matcher/Affine"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { isInt8 } from "./Kinds.ts"
import { isOutermost, outermost } from "./Outermost.ts"
import type { Plan } from "./Plan.ts"
import { largestPower } from "./Sizes.ts"
import {
  dependsOn,
  indexOf,
  piecePositions,
  type Product,
  productOf,
  readLoop,
  tileTokens,
  tokenLoop,
  unroll
} from "./TileLoops.ts"
import { lanes } from "./Vectors.ts"

const pair = 2
/** Vector registers that engines for WebAssembly use. */
const vectorRegisters = 16
/** Most copies of a body on a CPU: 4 lanes x 4 vectors of tokens x 2 rows x 8 weights. */
const maxCopiesCpu = 256

/** Loops of a reduction over the weights of a word: their load is invariant. */
const packedLoops = (reduction: UOp, weights: ReadonlyArray<UOp>): ReadonlyArray<Loops.Loop> =>
  Loops.loopsOf(reduction).filter((l) =>
    l.axis === "REDUCE" && !l.isSymbolic && l.size <= lanes && !weights.some((w) => dependsOn(w, l))
  )

/** Whether weights are contiguous along a loop over rows, in whole vectors: unpacking is then vectorised. */
const isAlong = (loop: Loops.Loop, weights: ReadonlyArray<UOp>): boolean =>
  loop.size % lanes === 0 && weights.some((w) => stepOf(indexOf(w), loop.node) === 1)

/** Accumulators of a thread, in vectors: the other half of the registers is for operands. */
const sumsCpu = vectorRegisters / 2

/** The register tile of tokens and rows, as large as the accumulators allow. Vectorised rows go before tokens. */
const upcastTile = (plan: Plan, tokens: Loops.Loop, { rows, weights }: Product): void => {
  const sums = sumsCpu / outermost(plan.kernel).length
  const along = rows.find((loop) => isAlong(loop, weights))
  const vectors = Math.min(tileTokens / lanes, along === undefined ? sums : sums / lanes)
  plan.try(Opt.upcast(tokens.id, lanes))
  plan.try(Opt.upcast(tokens.id, Math.floor(vectors)))
  const row = along ?? rows.find((loop) => loop.size % pair === 0) ?? rows[0]!
  plan.try(Opt.upcast(row.id, largestPower(row.size, Math.max(1, Math.floor(sums / Math.max(1, vectors))))))
}

/**
 * Opts of a product over tiles of tokens on a CPU: a weight is unpacked once for all tokens of a tile, and activations are reused for
 * several rows. Dot products of bytes stay a loop over words, with the contents of a word unrolled: 35 instructions for 16 products of
 * vectors of bytes. Returns whether the kernel is one.
 */
export const chooseTilesCpu = (plan: Plan): boolean => {
  const tokens = tokenLoop(plan.kernel) ?? tokenLoop(plan.kernel, piecePositions) ?? readLoop(plan.kernel)
  const made = tokens === undefined ? undefined : productOf(plan.kernel, tokens)
  if (tokens === undefined || made === undefined) return false
  upcastTile(plan, tokens, made)
  const weightsOf = (kernel: UOp) => productOf(kernel, tokens)?.weights ?? made.weights
  const isBytes = isInt8(plan.kernel)
  if (!isBytes) unroll(plan, maxCopiesCpu, weightsOf)
  for (const number of Loops.reductions(plan.kernel).keys()) {
    const reduction = Loops.reductions(plan.kernel)[number]!
    if (isBytes && isOutermost(plan.kernel, reduction)) continue
    for (const loop of packedLoops(reduction, weightsOf(plan.kernel))) {
      if (Loops.copies(plan.kernel) * loop.size <= maxCopiesCpu) plan.try(Opt.unroll(loop.id, loop.size))
    }
  }
  return true
}
