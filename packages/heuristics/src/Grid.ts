import type { UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"

/** Dimensions of a grid. */
const dimensions = 3

/** Grid dimensions that loops take: neighbouring loops of constant size are collapsed into one, a longer one takes two. */
const dimensionsOf = (loops: ReadonlyArray<Loops.Loop>, maxGrid: number): number => {
  let used = 0
  let shared = Infinity
  for (const { isSymbolic, size } of loops.toReversed()) {
    if (size > maxGrid * maxGrid) return Infinity
    if (isSymbolic || size > maxGrid) {
      used += size > maxGrid ? 2 : 1
      if (!isSymbolic) shared = Infinity
      continue
    }
    shared *= size
    if (shared <= maxGrid) continue
    used++
    shared = size
  }
  return used
}

/**
 * Candidates for serial loops inside of the threads, where the loops over workgroups do not fit a grid: those of constant size first,
 * and of these the longest, which help most. Empty if the grid has room.
 */
export const loopsOffGrid = (kernel: UOp, maxGrid: number): ReadonlyArray<Loops.Loop> => {
  const loops = Loops.outputs(kernel).filter((loop) => loop.axis === "GLOBAL")
  return dimensionsOf(loops, maxGrid) <= dimensions
    ? []
    : loops.toSorted((a, b) => Number(a.isSymbolic) - Number(b.isSymbolic) || b.size - a.size)
}
