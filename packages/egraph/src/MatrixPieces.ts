/**
 * Cascades in pieces whose scores and mix are products on matrix units, both in one kernel: a piece of all rows that read the same values is a workgroup's. One
 * token's heads are such rows. Calibrated by plain WGSL of 20 heads on an H100 (docs/matrix-units.md).
 */
import { type DeviceProfile, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { side } from "@tg/core-uop/MatrixTile"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import type { Cascade } from "./Cascade.ts"
import * as HalfProducts from "./HalfProducts.ts"
import { inPieces, type Plan, type Together } from "./Pieces.ts"
import { rowsTogether, type Site, tokenAxis } from "./SplitCost.ts"
import { pagesIn, productsAt } from "./Stored.ts"

/** Positions of a piece that are tried. */
const usualPiece = 64
const pieces: ReadonlyArray<number> = [2 * usualPiece, usualPiece]
/** Rows of a workgroup at least, so that half of a fragment is used, and at most, as there are accumulators for. */
const fewestRows = side / 2
const mostRows = 2 * side
/** Terms of a score, and positions of a mix, that a workgroup has in its memory at a time. */
const terms = 64
const positionsAtOnce = 16
/** Fewer terms are staged at a time where memory is short. */
const leastTerms = 32
/** What rows in workgroup memory are apart, over their length, so that they do not share banks. */
const padding = 1.25
/** Stages beside the products: maxima, weights, sums, and results in several turns. */
const stages = 6
/** A step, which waits for memory besides, in stages: pieces of 64 positions of 20 heads take an H100 14.0 us behind nothing, of 128 19.8. */
const stagesOfStep = 1.8
/** Loads of a thread that are under way at a time. */
const loadsAtOnce = 6

/** Bytes of workgroup memory: scores and weights of all rows as floats, and operands of a product as halves, whatever is staged at a time. */
const bytesOf = (piece: number, { rows, width }: { readonly rows: number; readonly width: number }): number => {
  const [floats, halves] = [4, 2]
  const staged = Math.max(piece * leastTerms, width * positionsAtOnce) + mostRows * leastTerms
  return floats * 2 * rows * piece + padding * halves * staged
}

/** Pieces, and what they take. */
export interface Way {
  readonly plan: Plan
  /** Microseconds behind so many positions. */
  readonly behind: (positions: number) => number
}

const behindOf = (
  plan: Plan,
  { depth, rows }: { readonly depth: number; readonly rows: number },
  profile: DeviceProfile
): Way["behind"] => {
  const { cachedLoadMicros, processors, stageMicros } = quantitiesOf(profile)
  // each is staged while the one before is multiplied; one of scores has the piece's positions, besides the rows
  const steps = depth / terms * (usualPiece + plan.piece) / (2 * usualPiece) + plan.piece / positionsAtOnce
  // a workgroup has a processor for itself, as it needs its registers
  const wave = (stagesOfStep * steps + stages) * stageMicros
  return (positions) => {
    const count = Math.ceil(positions / plan.piece)
    const waves = Math.ceil(count * rows / rowsTogether(plan) / processors)
    return 2 * profile.dispatchMicros + waves * wave + count * cachedLoadMicros / loadsAtOnce
  }
}

/** Rows of a workgroup: all that read the same values, or else those of each token. */
const togetherOf = ({ shared }: Site): Together | undefined =>
  [shared, shared.filter(({ axis }) => axis !== tokenAxis)].find((together) => {
    const rows = rowsTogether({ together })
    return rows >= fewestRows && rows <= mostRows
  })

/** Pieces on matrix units; none where too few rows read the same values, or one of the sums is no product with halves. */
export const waysOf = (site: Site, profile: DeviceProfile, cascade: Cascade): ReadonlyArray<Way> => {
  const depth = productsAt(cascade)?.depth
  const together = togetherOf(site)
  if (depth === undefined || together === undefined) return []
  const fits = (piece: number): boolean =>
    pagesIn(cascade.size, piece) !== undefined &&
    bytesOf(piece, { rows: rowsTogether({ together }), width: site.width }) <= profile.maxWorkgroupBytes
  return pieces.filter(fits).map((piece) => {
    const plan: Plan = { piece, together }
    return { plan, behind: behindOf(plan, { depth, rows: site.rows }, profile) }
  })
}

/** A cascade in pieces with both operands of its products as halves. */
export const made = (cascade: Cascade, plan: Plan): UOp | undefined => {
  const cuts = pagesIn(cascade.size, plan.piece)
  const split = cuts && inPieces(cascade, plan, cuts)
  const others = new Set(toposort(cascade.root.reduce))
  return split && HalfProducts.inPieces(split, (node) => !others.has(node))
}
