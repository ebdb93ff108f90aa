/**
 * Programs for devices with matrix units: cascades whose scores are stored where that takes less time than pieces, all others as everywhere, and
 * operands of products with halves of a cache as halves.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import type { Cascade } from "./Cascade.ts"
import * as Constants from "./Constants.ts"
import * as HalfProducts from "./HalfProducts.ts"
import * as MatrixPieces from "./MatrixPieces.ts"
import * as Split from "./Split.ts"
import { cheapest, type Costed, type Site } from "./SplitCost.ts"
import { inChunks, storableAt } from "./Stored.ts"
import * as StoredCost from "./StoredCost.ts"

/** A cascade's figures, and positions at most. */
interface Ranged extends Site {
  readonly most: number
}

/** What something takes behind the least positions and behind as many as usual together, and behind the most besides. */
const taking = (
  behind: (positions: number) => number,
  { least, most, positions }: Pick<Ranged, "least" | "most" | "positions">
) => {
  const usual = behind(least) + behind(positions)
  return { usual, whole: usual + behind(most) }
}

/**
 * The chunks that take least in the beginning of a context, behind as many positions as usual, and at its end together, of those whose sums and scores a kernel can
 * be given: it depends on the positions how many waves of workgroups they are.
 */
const cheapestChunk = (work: StoredCost.Work & Ranged, profile: DeviceProfile) => {
  const { most } = work
  const fits = (chunk: number): boolean =>
    StoredCost.storedBytes({ ...work, positions: most }, chunk).every((bytes) => bytes <= profile.maxBindingBytes)
  const ways = StoredCost.chunks.filter(fits).map((chunk) => {
    const behind = (positions: number): number => StoredCost.microsOf({ ...work, positions }, chunk, profile)
    return { chunk, behind, ...taking(behind, work) }
  })
  return ways.toSorted((a, b) => a.whole - b.whole)[0]
}

/** How much longer than other pieces those on matrix units may take in the first half of a context, for what they save in the second. */
const mayTake = 1.1

/** Pieces on matrix units, where they take less time than others up to the end of the context, and hardly more before. */
const onUnits = (site: Ranged, profile: DeviceProfile, cascade: Cascade, { behind }: Costed) => {
  if (behind === undefined) return undefined
  const others = taking(behind, site)
  return MatrixPieces.waysOf(site, profile, cascade)
    .map((way) => ({ ...way, ...taking(way.behind, site) }))
    .filter(({ usual, whole }) => usual <= mayTake * others.usual && whole < others.whole)
    .toSorted((a, b) => a.whole - b.whole)[0]
}

/** Pieces on matrix units, or stored scores where they take less time than pieces: in the beginning of a context, and behind as many positions as usual. */
const choose: Split.Choose = (site, profile, cascade) => {
  const other = cheapest(site, profile)
  const { positions } = site
  const ranged = { ...site, most: Shape.maxOf(cascade.size) }
  const depth = storableAt(cascade)?.depth
  const chunks = depth === undefined ? undefined : cheapestChunk({ ...ranged, depth }, profile)
  const pieces = onUnits(ranged, profile, cascade, other)
  if (pieces !== undefined && pieces.whole < (chunks?.whole ?? Infinity)) {
    return { ...other, plan: pieces.plan, micros: pieces.behind(positions), inPieces: MatrixPieces.made }
  }
  const first = cheapest({ ...site, positions: site.least }, profile)
  if (chunks === undefined || chunks.usual >= first.micros + other.micros) return other
  const stored = inChunks(cascade, { chunk: chunks.chunk, parts: StoredCost.partsOf(chunks.chunk) })
  return stored === undefined
    ? other
    : { ...other, stored, plan: { piece: chunks.chunk }, micros: chunks.behind(positions) }
}

/** The program with its cascades as a device computes them in the least time, or as somebody else chooses. */
export const ofProgram = (sink: UOp, profile: DeviceProfile, by = choose): Split.Splitted => {
  if (!HalfProducts.mayRound(toposort(sink), profile)) return Split.ofProgram(sink, profile)
  const { reports, sink: made } = Split.ofProgram(Constants.behindSums(sink), profile, by)
  return { sink: HalfProducts.ofProgram(made), reports }
}
