/** Reductions that are split over threads. */
import type { UOp } from "@tg/core-uop/UOp"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { isOutermost } from "./Outermost.ts"
import type { Plan } from "./Plan.ts"
import { iterations, largestDivisor, largestPower } from "./Sizes.ts"

export { isOutermost, outermost } from "./Outermost.ts"

/** Threads of one reduction: a subgroup, where there are subgroups. */
export const maxGroup = 32
const groupWithoutSubgroups = 16

/** Threads of a reduction by default, in a workgroup of `threads`: at most a subgroup. */
export const usualGroup = (
  { maxWorkgroupThreads, subgroupSize }: DeviceProfile,
  threads = maxWorkgroupThreads
): number => Math.min(maxGroup, subgroupSize ?? groupWithoutSubgroups, threads)

/** A reduction of fewer iterations is faster in one thread. */
export const shortReduction = 8

/** The assumed trip count of a symbolic loop: long enough to be split. */
const symbolicIterations = 256

/** Iterations of the longest reduction, over those of its loops that count. */
const longest = (kernel: UOp, counts: (loop: Loops.Loop) => boolean): number =>
  Math.max(
    1,
    ...Loops.reductions(kernel).map((r) =>
      Loops.loopsOf(r).filter(counts).reduce((n, l) => n * (l.isSymbolic ? symbolicIterations : l.size), 1)
    )
  )

/** Serial iterations of the longest reduction in one thread. */
export const longestReduction = (kernel: UOp): number => longest(kernel, (l) => l.axis === "REDUCE")

/** Terms of the longest sum. */
export const terms = (kernel: UOp): number => longest(kernel, () => true)

/** Threads of the reduction of a kernel, or of a part of one, that has most. */
export const largestGroup = (part: UOp): number => Math.max(1, ...Loops.reductions(part).map(Loops.groupOf))

/** Splits a reduction over up to `threads` threads, innermost loop first, for coalesced loads. Returns the threads that are left. */
export const groupInnermost = (plan: Plan, reduction: UOp, threads: number): number =>
  Loops.loopsOf(reduction).toReversed().filter((l) => l.axis === "REDUCE" && !l.isSymbolic).reduce((left, loop) => {
    const amount = largestPower(loop.size, left)
    return plan.try(Opt.group(loop.id, amount)) ? left / amount : left
  }, threads)

/**
 * Splits each outermost reduction over up to `threads` threads, outer loops first: neighbouring threads then read neighbouring
 * blocks. The first `inside` of them go to the innermost loops, so that loads of activations are coalesced and threads share words
 * of the weight. A symbolic loop comes last. Where sizes have only powers of two below `leastPower` as divisors, other divisors are
 * taken: by default if half of the threads would be left.
 */
export const groupReductions = (
  plan: Plan,
  threads: number,
  { inside = 1, leastPower, part = () => plan.kernel }: {
    readonly inside?: number
    readonly leastPower?: number
    readonly part?: () => UOp
  } = {}
): void => {
  // the longest first: of two groups one has to divide the other
  const lengths = Loops.reductions(part()).map((r) => iterations(Loops.loopsOf(r)))
  for (const number of [...lengths.keys()].sort((a, b) => lengths[b]! - lengths[a]! || a - b)) {
    const reduction = Loops.reductions(part())[number]!
    if (!isOutermost(plan.kernel, reduction)) continue
    let left = Math.max(1, Math.floor(threads / Loops.groupOf(reduction)))
    const shared = new Set<number>()
    const share = (loop: Loops.Loop, most: number, divisor = largestPower): void => {
      if (shared.has(loop.id)) return
      const amount = loop.isSymbolic ? most : divisor(loop.size, most)
      if (!plan.try(Opt.group(loop.id, amount))) return
      left = Math.floor(left / amount)
      shared.add(loop.id)
    }
    const serial = Loops.loopsOf(reduction).filter((l) => l.axis === "REDUCE")
    const known = serial.filter((l) => !l.isSymbolic)
    const power = known.reduce((n, l) => n * largestPower(l.size, left), 1)
    if (serial.length === known.length && power < Math.min(left / 2, leastPower ?? Infinity)) {
      for (const loop of known.toReversed()) share(loop, left, largestDivisor)
      if (shared.size > 0) continue
    }
    const reserved = left / Math.min(left, inside)
    for (const loop of known.slice(1).reverse()) share(loop, Math.floor(left / reserved))
    for (const loop of [...known, ...serial.filter((l) => l.isSymbolic)]) share(loop, left)
  }
}
