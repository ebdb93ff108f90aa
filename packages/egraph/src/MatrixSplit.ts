/**
 * Programs for devices with matrix units: cascades whose scores are stored where that takes less time than pieces, all others as everywhere, and
 * operands of products with halves of a cache as halves.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import { rebuild, toposort, type UOp } from "@tg/core-uop/UOp"
import { type Cascade, cascadeAt } from "./Cascade.ts"
import * as HalfProducts from "./HalfProducts.ts"
import * as Split from "./Split.ts"
import { cheapest, type Site, siteOf } from "./SplitCost.ts"
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

/** What a cascade is cut into and takes, if chunks behind stored scores take less than pieces: in the beginning of a context, and as far behind as usual. */
const chosenAt = (cascade: Cascade, site: Site, profile: DeviceProfile) => {
  const depth = storableAt(cascade)?.depth
  if (depth === undefined) return undefined
  const way = cheapestChunk({ ...site, depth }, Shape.maxOf(cascade.size), profile)
  const { micros, wholeMicros } = cheapest(site, profile)
  const first = cheapest({ ...site, positions: beginning }, profile)
  return way !== undefined && way.usual < first.micros + micros
    ? { chunk: way.chunk, micros: way.behind(site.positions), wholeMicros }
    : undefined
}

/** The program with scores stored where somebody chooses so. */
const withStored = (sink: UOp, profile: DeviceProfile, choose: typeof chosenAt): Split.Splitted => {
  const nodes = toposort(sink)
  const roots = Split.cascadesOf(nodes)
  const labels = Split.labelsOf(nodes)
  const callers = Split.callersOf(nodes, roots)
  const reports: Array<Split.SplitReport> = []
  const made = rebuild(sink, (node, src) => {
    const now = src === node.src ? node : node.with(src)
    const cascade = roots.has(node) ? cascadeAt(now) : undefined
    if (cascade === undefined) return now
    const site = siteOf(cascade)
    const label = labels.get(node)
    const chosen = choose(cascade, site, profile)
    const stored = chosen && inChunks(cascade, { chunk: chosen.chunk, label })
    if (chosen === undefined || stored === undefined) return now
    const { pieces: _, ...told } = site
    const { chunk: piece, ...micros } = chosen
    const own = { callers: callers.get(node) ?? [], label, piece, isStored: true, together: 1 } as const
    reports.push({ ...told, ...own, ...micros })
    return stored
  })
  return { sink: made, reports }
}

/** The program with its cascades as a device computes them in the least time. */
export const ofProgram = (sink: UOp, profile: DeviceProfile, choose = chosenAt): Split.Splitted => {
  if (!HalfProducts.mayRound(toposort(sink), profile)) return Split.ofProgram(sink, profile)
  const stored = withStored(sink, profile, choose)
  const { reports, sink: made } = Split.ofProgram(stored.sink, profile)
  return { sink: HalfProducts.ofProgram(made), reports: [...stored.reports, ...reports] }
}
