/** Opts for a CPU: few threads, short vectors. */
import { openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import type { Plan } from "./Plan.ts"
import { freeOutputs, knownOutputs, upcastAlike } from "./Outputs.ts"
import { iterations, largestPower } from "./Sizes.ts"
import { lanes, loadsOf, unrollShortLoops, vectoriseOutputs, vectoriseReductions } from "./Vectors.ts"

/** The unroll factor of a reduction that still compiles quickly and keeps several loads in flight. */
const maxUnrollCpu = 8

/** Outputs in the register tile of a thread. */
const upcastOf = (kernel: UOp): number => iterations(Loops.outputs(kernel).filter((l) => l.axis === "UPCAST"))

/** Unrolls a long loop by two, within the limit on code size: half the loop overhead. */
const unrollInnermost = (plan: Plan, maxCopies: number): void => {
  const innermost = Loops.all(plan.kernel).filter((l) => l.axis === "REDUCE" && !l.isSymbolic).at(-1)
  if (innermost !== undefined && 2 * Loops.copies(plan.kernel) <= maxCopies) plan.try(Opt.unroll(innermost.id, 2))
}

/** With fewer groups of rows there is too little parallelism for the threads of a CPU. */
const fewestRows = 16
/** A symbolic loop of at least so many iterations is over the positions of a context, not over the tokens of a step. */
const fewestPositions = 256

const isOverPositions = (kernel: UOp): boolean =>
  Loops.outputs(kernel).some((loop) => loop.isSymbolic && loop.size >= fewestPositions)

/** Whether a register tile of `amount` rows leaves enough parallelism for the threads. */
const areEnough = (kernel: UOp, amount: number): boolean =>
  isOverPositions(kernel) || knownOutputs(kernel) / amount >= fewestRows

/** The loops on which it depends where a reduction reads, for each of its loads; not those on which it depends whether it does. */
const placesRead = (kernel: UOp): ReadonlyArray<ReadonlySet<UOp>> =>
  Loops.reductions(kernel).flatMap((r) => loadsOf(r.src[0]!)).map((load) => openRanges(load.src[0]!.src[1]!))

/**
 * Register tiling over rows that are far apart, which reuse the other operand: each row is then one long stream for the prefetcher.
 * Neighbouring rows would be streams of a row's length, which are prefetched at less than half the speed (10 GB/s instead of 25 for
 * four rows of 1 KB, on a server's core).
 */
const spreadRows = (plan: Plan): void => {
  const read = placesRead(plan.kernel)
  const loops = freeOutputs(plan.kernel).filter(({ node }) => read.some((open) => !open.has(node)))
  for (const amount of isOverPositions(plan.kernel) ? [8, 4, 2] : [4, 2]) {
    const loop = loops.findLast((l) => l.size % amount === 0)
    if (loop === undefined || !areEnough(plan.kernel, amount)) continue
    plan.try(Opt.spread(loop.id, amount))
    return
  }
}

/** Vector accumulators of a thread: half of its registers, the others are for loads. */
const mostSums = 8

/**
 * A register tile over outputs that share the vector loads of a reduction, such as heads over the values of a cache: these are
 * unpacked once for all of them. All other loads depend on the output.
 */
const shareVectors = (plan: Plan): void => {
  const vectors = Loops.outputs(plan.kernel).filter((loop) => loop.axis === "UPCAST")
  const read = placesRead(plan.kernel)
  const isVector = (open: ReadonlySet<UOp>): boolean => vectors.some((loop) => open.has(loop.node))
  const loop = freeOutputs(plan.kernel).findLast(({ node }) =>
    read.some((open) => isVector(open) && !open.has(node)) &&
    read.every((open) => isVector(open) !== open.has(node))
  )
  if (loop === undefined) return
  const amount = largestPower(loop.size, mostSums / Math.ceil(upcastOf(plan.kernel) / lanes))
  if (areEnough(plan.kernel, amount)) plan.try(Opt.upcast(loop.id, amount))
}

/**
 * Lanes along outputs that are nowhere neighbours in memory, where an element takes some twenty instructions: softmax of heads, over
 * positions. Lanes are then loaded and stored one by one.
 */
const vectoriseWork = (plan: Plan): void => {
  if (!toposort(plan.kernel).some(({ op }) => op === "EXP2")) return
  const loop = freeOutputs(plan.kernel).findLast(({ size }) => size % lanes === 0)
  if (loop !== undefined) plan.try(Opt.upcast(loop.id, lanes))
}

/** Short vectors, register tiles of rows, unrolled inner loops. */
export const chooseCpu = (plan: Plan): void => {
  const reduced = vectoriseReductions(plan)
  if (reduced) spreadRows(plan)
  else {
    if (!vectoriseOutputs(plan)) vectoriseWork(plan)
    upcastAlike(plan)
    shareVectors(plan)
  }
  const maxCopies = lanes * maxUnrollCpu * upcastOf(plan.kernel)
  unrollShortLoops(plan, maxUnrollCpu, () => maxCopies)
  if (reduced) unrollInnermost(plan, maxCopies)
}
