/**
 * Programs for devices with matrix units: cascades whose scores are stored where that takes less time than pieces, all others as everywhere, and
 * operands of products with halves of a cache as halves.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import * as HalfProducts from "./HalfProducts.ts"
import * as MatrixPieces from "./MatrixPieces.ts"
import * as Split from "./Split.ts"
import { cheapest } from "./SplitCost.ts"
import { inChunks, storableAt } from "./Stored.ts"
import * as StoredCost from "./StoredCost.ts"

/** Positions of the first step of a conversation. */
const beginning = 64

/** What something takes in the beginning of a context and behind as many positions as usual together, and at its end besides. */
const taking = (
  behind: (positions: number) => number,
  { most, positions }: { readonly positions: number; readonly most: number }
) => {
  const usual = behind(beginning) + behind(positions)
  return { usual, whole: usual + behind(most) }
}

/**
 * The chunks that take least in the beginning of a context, behind as many positions as usual, and at its end together, of those whose sums and scores a kernel can
 * be given: it depends on the positions how many waves of workgroups they are.
 */
const cheapestChunk = (work: StoredCost.Work, most: number, profile: DeviceProfile) => {
  const fits = (chunk: number): boolean =>
    StoredCost.storedBytes({ ...work, positions: most }, chunk).every((bytes) => bytes <= profile.maxBindingBytes)
  const ways = StoredCost.chunks.filter(fits).map((chunk) => {
    const behind = (positions: number): number => StoredCost.microsOf({ ...work, positions }, chunk, profile)
    return { chunk, behind, ...taking(behind, { positions: work.positions, most }) }
  })
  return ways.toSorted((a, b) => a.whole - b.whole)[0]
}

/** Stored scores, or pieces on matrix units, where they take less time than other pieces: in the beginning of a context, and behind as many positions as usual. */
const choose: Split.Choose = (site, profile, cascade) => {
  const other = cheapest(site, profile)
  const { positions } = site
  const most = Shape.maxOf(cascade.size)
  const depth = storableAt(cascade)?.depth
  const chunks = depth === undefined ? undefined : cheapestChunk({ ...site, depth }, most, profile)
  const [pieces] = MatrixPieces.waysOf(site, profile, cascade)
    .map((way) => ({ ...way, ...taking(way.behind, { positions, most }) }))
    .toSorted((a, b) => a.whole - b.whole)
  const usual = cheapest({ ...site, positions: beginning }, profile).micros + other.micros
  if (pieces !== undefined && pieces.usual < Math.min(usual, chunks?.usual ?? Infinity)) {
    return { ...other, plan: pieces.plan, micros: pieces.behind(positions), refined: MatrixPieces.refined(cascade) }
  }
  if (chunks === undefined || chunks.usual >= usual) return other
  const stored = inChunks(cascade, chunks.chunk)
  return stored === undefined
    ? other
    : { ...other, stored, plan: { piece: chunks.chunk }, micros: chunks.behind(positions) }
}

/** The program with its cascades as a device computes them in the least time, or as somebody else chooses. */
export const ofProgram = (sink: UOp, profile: DeviceProfile, by = choose): Split.Splitted => {
  if (!HalfProducts.mayRound(toposort(sink), profile)) return Split.ofProgram(sink, profile)
  const { reports, sink: made } = Split.ofProgram(sink, profile, by)
  return { sink: HalfProducts.ofProgram(made), reports }
}
