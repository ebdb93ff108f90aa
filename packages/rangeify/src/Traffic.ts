/** How often loops run, and what a kernel reads and writes in memory. */
import * as Bounds from "@tg/core-uop/Bounds"
import { openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"

/** The trip count of a loop of this size. */
export type SizeOf = (size: UOp) => number

/**
 * The assumed trip count of a loop of symbolic size, over tokens or pieces of a context: a quarter of the bound, as a context is
 * seldom full, within these limits.
 */
const usualPart = 4
const fewestIterations = 16
const mostIterations = 64
const usualIterations = (most: number): number =>
  Math.min(most, mostIterations, Math.max(fewestIterations, Math.floor(most / usualPart)))

/** What a loop of this size is taken to run where nobody knows the position. */
export const usualSize: SizeOf = (size) => size.op === "CONST" ? Number(size.arg) : usualIterations(Bounds.of(size).max)

const none: ReadonlySet<UOp> = new Set()

/**
 * Elements that a kernel (spec `kernel`) reads and writes of each PARAM, each counted once: one for each iteration of the loops
 * that its index depends on, but no more than the index or the buffer has. Loops `outside` have one iteration.
 */
export const traffic = (
  kernel: UOp,
  sizeOf: SizeOf,
  outside: ReadonlySet<UOp> = none
): ReadonlyMap<UOp, number> => trafficOf(toposort(kernel), sizeOf, outside)

/** The same of the nodes of a kernel. */
export const trafficOf = (
  nodes: ReadonlyArray<UOp>,
  sizeOf: SizeOf,
  outside: ReadonlySet<UOp>
): ReadonlyMap<UOp, number> => {
  const indices = new Map<UOp, Set<UOp>>()
  for (const node of nodes) {
    if (node.op !== "INDEX") continue
    const { at, buffer } = accessOf(node)
    if (buffer.op === "LOCAL") continue
    const known = indices.get(buffer)
    if (known === undefined) indices.set(buffer, new Set([at]))
    else known.add(at)
  }
  const places = (at: UOp): number => {
    const { max, min } = Bounds.of(at)
    const ranges = [...openRanges(at)].filter((range) => !outside.has(range))
    return Math.min(ranges.reduce((n, range) => n * sizeOf(range.src[0]!), 1), max - min + 1)
  }
  return new Map([...indices].map(([param, found]) => [
    param,
    Math.min([...found].reduce((sum, at) => sum + places(at), 0), sizeOf(param.src[0]!))
  ]))
}
