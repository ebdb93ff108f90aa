/** Kernels over tiles of tokens: the loops of tokens and rows, and what depends on them. */
import { openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf, endsOf } from "@tg/core-uop/View"
import { stepOf } from "@tg/pattern-matcher/Affine"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import type { Plan } from "./Plan.ts"
import { largestPower } from "./Sizes.ts"
import { lanes } from "./Vectors.ts"

/** Tokens of a tile, which tell their loop from the features of a symbolic number of rows. */
export const tileTokens = 16
/**
 * The same for positions of a cache: decompressing the keys or values of each head of a whole cache is a product over tokens too. On
 * an H200 such keys took 600 us with the opts of rows (512 positions, 16 heads of 128 rows of 512).
 */
export const piecePositions = 64
export const loadsOf = (node: UOp): ReadonlyArray<UOp> => toposort(node).filter((n) => n.op === "LOAD")
export const indexOf = (load: UOp): UOp => load.src[0]!.src[1]!
export const dependsOn = (load: UOp, loop: Loops.Loop): boolean => openRanges(indexOf(load)).has(loop.node)
export const isFree = (loop: Loops.Loop): boolean => loop.axis === "GLOBAL" && !loop.isSymbolic

/** The index at which the first END of a kernel stores. */
export const placeOf = (kernel: UOp): UOp => accessOf(endsOf(kernel)[0]!.stores[0]!).at

/** The loop over so many tokens of a tile that are neighbours at an index, if there is one. */
const tokensAt = (kernel: UOp, at: UOp, size: number): Loops.Loop | undefined => {
  const outputs = Loops.outputs(kernel)
  return outputs.find((loop) =>
    isFree(loop) && loop.size === size && stepOf(at, loop.node) === 1 &&
    outputs.some((tiles) => tiles.isSymbolic && stepOf(at, tiles.node) === loop.size)
  )
}

/** The loop over the tokens of a tile, or of so many positions, if the kernel has one. */
export const tokenLoop = (kernel: UOp, size: number = tileTokens): Loops.Loop | undefined =>
  tokensAt(kernel, placeOf(kernel), size)

/** The same of a product that reads tiles and stores token by token, as rows of a cache are. */
export const readLoop = (kernel: UOp): Loops.Loop | undefined =>
  Loops.reductions(kernel).flatMap((r) => loadsOf(r.src[0]!)).map((load) => tokensAt(kernel, indexOf(load), tileTokens))
    .find((loop) => loop !== undefined)

/** Weights and activations of a product, and the loops over its rows, inner ones first. */
export interface Product {
  readonly weights: ReadonlyArray<UOp>
  readonly rows: ReadonlyArray<Loops.Loop>
}

export const productOf = (kernel: UOp, tokens: Loops.Loop): Product | undefined => {
  const loads = [...new Set(Loops.reductions(kernel).flatMap((r) => loadsOf(r.src[0]!)))]
  const activations = loads.filter((load) => dependsOn(load, tokens))
  const weights = loads.filter((load) => !dependsOn(load, tokens))
  const rows = Loops.outputs(kernel)
    .filter((loop) => isFree(loop) && loop !== tokens && weights.some((w) => dependsOn(w, loop)))
    .filter((loop) => !activations.some((x) => dependsOn(x, loop)))
    .reverse()
  return activations.length === 0 || rows.length === 0 ? undefined : { weights, rows }
}

/** The loop of a reduction along which weights are neighbours, or else its innermost one. */
const innerLoop = (reduction: UOp, weights: ReadonlyArray<UOp>): Loops.Loop | undefined => {
  const loops = Loops.loopsOf(reduction).filter((l) => l.axis === "REDUCE" && !l.isSymbolic)
  return loops.findLast((l) => l.size % lanes === 0 && weights.some((w) => stepOf(indexOf(w), l.node) === 1)) ??
    loops.at(-1)
}

export const unroll = (plan: Plan, maxCopies: number, weights: (kernel: UOp) => ReadonlyArray<UOp>): void => {
  for (const number of Loops.reductions(plan.kernel).keys()) {
    const reduction = Loops.reductions(plan.kernel)[number]!
    const loops = Loops.loopsOf(reduction)
    if (loops.some((l) => l.axis === "UNROLL")) continue
    const loop = innerLoop(reduction, weights(plan.kernel))
    if (loop !== undefined && Loops.copies(plan.kernel) * lanes <= maxCopies) {
      plan.try(Opt.unroll(loop.id, largestPower(loop.size, lanes)))
    }
  }
}
