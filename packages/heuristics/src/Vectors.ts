/** Vectorisation and unrolling. */
import { accessOf, storeOf } from "@tg/core-uop/View"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import { stepOf } from "@tg/pattern-matcher/Affine"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import type { Plan } from "./Plan.ts"
import { iterations } from "./Sizes.ts"

/** Elements of a vector. */
export const lanes = 4
/** The largest unroll factor: shader compilers are superlinear in the size of a basic block, and some need minutes beyond this. */
export const maxUnrollGpu = 4

/** Terms of a reduction that are enough for the threads of a subgroup and for vectors. */
export const fewestTerms = ({ subgroupSize = 0 }: DeviceProfile): number => lanes * subgroupSize

/** Loads from buffers. Workgroup memory does not need contiguous access. */
export const loadsOf = (node: UOp): ReadonlyArray<UOp> =>
  toposort(node).filter((n) => n.op === "LOAD" && accessOf(n).buffer.op === "PARAM")

/** Loads that become vector loads along the loop, minus those that become a gather of scalars. */
const contiguity = (loads: ReadonlyArray<UOp>, loop: Loops.Loop): number =>
  loads.reduce((score, load) => {
    const step = stepOf(accessOf(load).at, loop.node)
    return step === 1 ? score + 1 : step === 0 ? score : score - 1
  }, 0)

const isVectorisable = (loop: Loops.Loop): boolean => !loop.isSymbolic && loop.size % lanes === 0

/** The loop along which a body vectorises best, if along any. */
const bestLoop = (loads: ReadonlyArray<UOp>, loops: ReadonlyArray<Loops.Loop>): Loops.Loop | undefined => {
  const scored = loops.filter(isVectorisable).map((loop) => ({ loop, score: contiguity(loads, loop) }))
  const best = scored.sort((a, b) => b.score - a.score || b.loop.id - a.loop.id)[0]
  return best !== undefined && best.score > 0 ? best.loop : undefined
}

/**
 * Vectorises reductions along contiguous loads; returns whether any was. A reduction that is the same for all outputs, as a router's
 * top-k, leaves its terms to threads if there are fewer than `fewest`.
 */
export const vectoriseReductions = (
  plan: Plan,
  { fewest = 0, part = () => plan.kernel }: { readonly fewest?: number; readonly part?: () => UOp } = {}
): boolean => {
  let any = false
  for (const number of Loops.reductions(part()).keys()) {
    const reduction = Loops.reductions(part())[number]!
    const loops = Loops.loopsOf(reduction)
    // reductions that share loops are vectorised together
    if (loops.some((l) => l.axis === "UNROLL")) continue
    if (openRanges(reduction).size === 0 && iterations(loops) < fewest) continue
    const loop = bestLoop(loadsOf(reduction.src[0]!), loops.filter((l) => l.axis === "REDUCE"))
    if (loop !== undefined) any = plan.try(Opt.unroll(loop.id, lanes)) || any
  }
  return any
}

/**
 * Unrolls short loops, inner ones first: packed integers are then shifted by constants, and the dot product of a block needs no
 * accumulators that live across a loop (their register pressure halves the occupancy: 12 us instead of 9.5 for experts' gate and up on
 * an H200). A loop's body has so many copies at most.
 */
export const unrollShortLoops = (
  plan: Plan,
  maxUnroll: number,
  maxCopies: (loop: number) => number = () => lanes * maxUnroll
): void => {
  const loops = Loops.reductions(plan.kernel).flatMap((reduction) => Loops.loopsOf(reduction).toReversed())
  for (const id of new Set(loops.filter((l) => l.axis === "REDUCE" && !l.isSymbolic).map((l) => l.id))) {
    const loop = Loops.all(plan.kernel).find((l) => l.id === id && l.axis === "REDUCE")!
    const copies = Loops.copies(plan.kernel) * loop.size
    if (copies <= maxCopies(id) && loop.size <= maxUnroll) plan.try(Opt.unroll(loop.id, loop.size))
  }
}

/** Vectorises along the outputs, where the store and the loads are contiguous. */
export const vectoriseOutputs = (
  plan: Plan,
  part: () => UOp = () => plan.kernel.src[0]!,
  loops: ReadonlyArray<Loops.Loop> = Loops.outputs(plan.kernel).filter((l) => l.axis === "GLOBAL")
): boolean => {
  const { at, value } = storeOf(part().src[0]!)
  const contiguous = loops.filter((l) => isVectorisable(l) && stepOf(at, l.node) === 1)
  const loop = bestLoop(loadsOf(value), contiguous) ?? contiguous[0]
  return loop !== undefined && plan.try(Opt.upcast(loop.id, lanes))
}
