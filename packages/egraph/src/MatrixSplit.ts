/**
 * Programs for devices with matrix units: cascades whose scores are stored where that takes less time than pieces, all others as everywhere, and
 * operands of products with halves of a cache as halves.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import * as HalfProducts from "./HalfProducts.ts"
import * as Split from "./Split.ts"
import { cheapest } from "./SplitCost.ts"
import { inChunks, storableAt } from "./Stored.ts"
import * as StoredCost from "./StoredCost.ts"

/** Positions of the first step of a conversation. */
const beginning = 64

/**
 * The chunks that take least in the beginning of a context, behind as many positions as usual, and at its end together, of those whose sums and scores a kernel can
 * be given: it depends on the positions how many waves of workgroups they are.
 */
const cheapestChunk = (work: StoredCost.Work, most: number, profile: DeviceProfile) => {
  const fits = (chunk: number): boolean =>
    StoredCost.storedBytes({ ...work, positions: most }, chunk).every((bytes) => bytes <= profile.maxBindingBytes)
  const ways = StoredCost.chunks.filter(fits).map((chunk) => {
    const behind = (positions: number): number => StoredCost.microsOf({ ...work, positions }, chunk, profile)
    const usual = behind(beginning) + behind(work.positions)
    return { chunk, behind, usual, whole: usual + behind(most) }
  })
  return ways.toSorted((a, b) => a.whole - b.whole)[0]
}

/** Stored scores where they take less time than pieces: in the beginning of a context, and behind as many positions as usual. */
const choose: Split.Choose = (site, profile, cascade) => {
  const other = cheapest(site, profile)
  const depth = storableAt(cascade)?.depth
  const way = depth === undefined
    ? undefined
    : cheapestChunk({ ...site, depth }, Shape.maxOf(cascade.size), profile)
  const first = cheapest({ ...site, positions: beginning }, profile)
  if (way === undefined || way.usual >= first.micros + other.micros) return other
  const { behind, chunk } = way
  const stored = inChunks(cascade, chunk)
  return stored === undefined ? other : { ...other, stored, plan: { piece: chunk }, micros: behind(site.positions) }
}

/** The program with its cascades as a device computes them in the least time, or as somebody else chooses. */
export const ofProgram = (sink: UOp, profile: DeviceProfile, by = choose): Split.Splitted => {
  if (!HalfProducts.mayRound(toposort(sink), profile)) return Split.ofProgram(sink, profile)
  const { reports, sink: made } = Split.ofProgram(sink, profile, by)
  return { sink: HalfProducts.ofProgram(made), reports }
}
