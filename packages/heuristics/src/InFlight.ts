/** Unrolling for memory-level parallelism: how many loads of a thread are in flight. */
import * as Bounds from "@tg/core-uop/Bounds"
import { accessOf } from "@tg/core-uop/View"
import { openRanges, type UOp } from "@tg/core-uop/UOp"
import { stepOf } from "@tg/pattern-matcher/Affine"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import type { Plan } from "./Plan.ts"
import { iterations, largestDivisor, largestPowerOfTwo } from "./Sizes.ts"
import { loadsOf, maxUnrollGpu } from "./Vectors.ts"

/** Most results times unrolled iterations of a thread: the registers beside its loads. */
const mostResults = 256

/** Loads of an iteration: contiguous elements are one vector load. */
const loadsOfIteration = (
  reduction: UOp,
  upcast: ReadonlyArray<Loops.Loop>,
  counts: (load: UOp) => boolean = () => true
): number =>
  loadsOf(reduction).filter(counts).reduce((n, load) => {
    const { at } = accessOf(load)
    const open = openRanges(at)
    return n + iterations(upcast.filter((l) => open.has(l.node) && stepOf(at, l.node) !== 1))
  }, 0)

const upcastOf = (end: UOp): ReadonlyArray<Loops.Loop> => Loops.ofEnd(end).filter((l) => l.axis === "UPCAST")

/** What is so many times shorter than the longest argument of a reduction is taken to be computed in the same launch, if there is more than one phase. */
const shorter = 8

/** Loads of a phase that memory answers: the longest arguments'. Others were computed in front of it, and are in workgroup memory. */
export const loadsOfMemory = (reduction: UOp): (load: UOp) => boolean => {
  const lengthOf = (load: UOp): number => {
    const { buffer } = accessOf(load)
    return buffer.op === "PARAM" ? Bounds.of(buffer.src[0]!).max : 0
  }
  const longest = Math.max(0, ...loadsOf(reduction).map(lengthOf))
  return (load) => lengthOf(load) * shorter > longest
}

/** Unrolls long loops over memory, for memory-level parallelism: `most` loads in flight for each thread, of those that count. */
export const keepLoadsInFlight = (
  plan: Plan,
  part: () => UOp,
  most: number,
  countsOf: (reduction: UOp) => (load: UOp) => boolean = () => () => true
): void => {
  const upcast = upcastOf(part())
  for (const reduction of Loops.reductions(part())) {
    const loads = loadsOfIteration(reduction, upcast, countsOf(reduction))
    const loop = Loops.loopsOf(reduction).find((l) => l.axis === "REDUCE" && !l.isSymbolic && l.size > maxUnrollGpu)
    if (loads === 0 || loop === undefined) continue
    plan.try(Opt.unroll(loop.id, largestDivisor(loop.size, Math.min(most / loads, mostResults / iterations(upcast)))))
  }
}

/** Up to so many iterations of a symbolic loop, unrolling takes more loads behind its end than it saves waits. */
const fewIterations = 8

/**
 * The same of loops of symbolic size, as those over the pieces of a context: a loop that may end behind any iteration waits for the loads of one
 * after the other. On an H200 combining 63 and 250 pieces of GLM takes 3 and 7 us less by two at a time; by eight it is slower for few pieces.
 */
export const keepOpenLoadsInFlight = (plan: Plan, part: () => UOp, most: number): void => {
  for (const number of Loops.reductions(part()).keys()) {
    const reduction = Loops.reductions(part())[number]!
    const loop = Loops.loopsOf(reduction).find((l) => l.axis === "REDUCE" && l.isSymbolic && l.size > fewIterations)
    if (loop === undefined) continue
    const loads = loadsOfIteration(reduction, upcastOf(part()), (load) => openRanges(load).has(loop.node))
    if (loads > 0) plan.try(Opt.unroll(loop.id, largestPowerOfTwo(most / loads)))
  }
}
