/**
 * Programs for devices with matrix units: cascades whose scores are stored where that takes less time than pieces, all others as everywhere, and
 * operands of products with halves of a cache as halves.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import type { Cascade } from "./Cascade.ts"
import * as HalfProducts from "./HalfProducts.ts"
import * as Split from "./Split.ts"
import { cheapest, siteOf } from "./SplitCost.ts"
import { inChunks, storableAt } from "./Stored.ts"
import * as StoredCost from "./StoredCost.ts"

/** Positions of the first step of a conversation. */
const beginning = 64

/** The chunks that take least, of those whose sums and scores a kernel can be given. */
const cheapestChunk = (work: StoredCost.Work, most: number, profile: DeviceProfile) => {
  const fits = (chunk: number): boolean =>
    StoredCost.storedBytes({ ...work, positions: most }, chunk).every((bytes) => bytes <= profile.maxBindingBytes)
  const ways = StoredCost.chunks.filter(fits).map((chunk) => {
    const behind = (positions: number): number => StoredCost.microsOf({ ...work, positions }, chunk, profile)
    return { chunk, behind, usual: behind(beginning) + behind(work.positions) }
  })
  return ways.toSorted((a, b) => a.usual - b.usual)[0]
}

/** The chunks of a cascade behind stored scores, and what it then takes; none where it has no such scores. */
const chunksAt = (cascade: Cascade, profile: DeviceProfile) => {
  const depth = storableAt(cascade)?.depth
  return depth === undefined
    ? undefined
    : cheapestChunk({ ...siteOf(cascade), depth }, Shape.maxOf(cascade.size), profile)
}

/** A cascade with stored scores, where that takes less time than pieces: in the beginning of a context, and as far behind as usual. */
const cutAt = (cascade: Cascade, place: Split.Place, profile: DeviceProfile): Split.Cut => {
  const other = () => Split.cutAt(cascade, place, profile)
  const way = chunksAt(cascade, profile)
  if (way === undefined) return other()
  const { pieces, ...site } = siteOf(cascade)
  const { micros, wholeMicros } = cheapest({ pieces, ...site }, profile)
  const first = cheapest({ pieces, ...site, positions: beginning }, profile)
  return way.usual < first.micros + micros
    ? storedAt(cascade, { ...site, ...place, wholeMicros, micros: way.behind(site.positions) }, way.chunk) ?? other()
    : other()
}

/** A cascade with stored scores. */
export const storedAt = (
  cascade: Cascade,
  told: Omit<Split.SplitReport, "piece" | "isStored" | "together">,
  chunk: number
): Split.Cut | undefined => {
  const split = inChunks(cascade, { chunk, label: told.label })
  return split && { split, report: { ...told, piece: chunk, isStored: true, together: 1 } }
}

/** The program with its cascades as a device computes them in the least time, or as somebody else chooses. */
export const ofProgram = (sink: UOp, profile: DeviceProfile, cut = cutAt): Split.Splitted => {
  if (!HalfProducts.mayRound(toposort(sink), profile)) return Split.ofProgram(sink, profile)
  const { reports, sink: made } = Split.withCuts(sink, profile, (cascade, place) => cut(cascade, place, profile))
  return { sink: HalfProducts.ofProgram(made), reports }
}
