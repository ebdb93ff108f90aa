/** Kernels that stage values in workgroup memory. */
import { type DeviceProfile, processorsOf, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { openRanges, type UOp } from "@tg/core-uop/UOp"
import { loopsBetween } from "@tg/core-uop/Workgroup"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import {
  groupInnermost,
  groupReductions,
  longestReduction,
  maxGroup,
  outermost,
  shortReduction,
  usualGroup
} from "./Groups.ts"
import { hasManyRegisters, isInt8, loadsInFlight } from "./Kinds.ts"
import type { Plan } from "./Plan.ts"
import { knownOutputs, shareRows } from "./Rows.ts"
import { iterations, largestDivisor, largestPower, largestPowerOfTwo, nearestPowerOfTwo } from "./Sizes.ts"
import {
  fewestTerms,
  keepLoadsInFlight,
  lanes,
  loadsOf,
  maxUnrollGpu,
  unrollShortLoops,
  vectoriseOutputs,
  vectoriseReductions
} from "./Vectors.ts"

/** Least threads of a workgroup that stages values: enough to hide the loads of its stages from each other. */
const stagingThreads = 256
/** Workgroups that run beside each other on a processor, so that one computes while others wait: 512 threads each on an H200. */
const besideEachOther = 4
/** Threads where all workgroups stage the same, which is then little; kernels beside it in a launch may want no more. */
const aloneThreads = 64
const somewhatMore = 1.25
/** Results times threads that share them. */
const mostExchanged = 256
/**
 * Threads where there are more workgroups than run at once, as along the pieces of a context, and memory takes more loads at
 * once than usual code of so few threads has: fewer threads, each with more loads in flight and no other thread to wait for
 * (attention over 4000 positions on an H200: 26 us; with twice the threads 54).
 */
const crowdThreads = 128
const needsLoads = (profile: DeviceProfile): boolean => loadsInFlight(profile, crowdThreads) > maxUnrollGpu

/** Threads of each of `alike` workgroups. */
const threadsFor = (alike: number, profile: DeviceProfile): number => {
  if (alike === 1) return aloneThreads
  if (!Number.isFinite(alike) && needsLoads(profile)) return crowdThreads
  const most = quantitiesOf(profile).residentThreads / besideEachOther
  return Math.max(stagingThreads, largestPowerOfTwo(Math.min(most, profile.saturatingThreads / alike)))
}

/**
 * A kernel that stages values in workgroup memory. Each stage spreads its elements, and the reductions inside of them,
 * over all threads; so does the END that stores, whose outputs a workgroup shares as far as the device stays full.
 */
export const chooseStaged = (plan: Plan, profile: DeviceProfile): void => {
  // along a loop of unknown length there are enough workgroups
  const alike = [...loopsBetween(plan.kernel)].map((r) => Loops.toLoop(r))
    .reduce((n, l) => n * (l.isSymbolic ? Infinity : l.size), 1)
  const isCrowd = !Number.isFinite(alike) && needsLoads(profile)
  const hasRegisters = hasManyRegisters(profile)
  const last = plan.kernel.src.length - 1
  /** Whether all workgroups round one vector for their rows. */
  const rounds = alike === 1 && outermost(plan.kernel.src[last]!).some(isInt8)
  const most = Math.min(rounds ? stagingThreads : threadsFor(alike, profile), profile.maxWorkgroupThreads)
  const subgroup = usualGroup(profile, most)
  /** Workgroups that would leave processors idle, which share what they compute further. */
  const isSparse = alike > 1 && alike < processorsOf(profile)
  for (let number = 0; number <= last; number++) {
    const end = (): UOp => plan.kernel.src[number]!
    const between = loopsBetween(plan.kernel)
    const own = (): ReadonlyArray<Loops.Loop> =>
      Loops.ofEnd(end()).filter((l) =>
        !between.has(l.node) && !l.isSymbolic && (l.axis === "LOOP" || l.axis === "GLOBAL")
      )
    const bytes = isInt8(end())
    const reduced = vectoriseReductions(plan, { fewest: fewestTerms(profile), part: end })
    if (number === last && rounds) {
      shareRounded(plan, end, most)
      break
    }
    if (number === last && reduced && longestReduction(end()) >= shortReduction) {
      shareRows(plan, profile, { group: subgroup, threads: Math.min(2 * stagingThreads, profile.maxWorkgroupThreads) })
      break
    }
    if (hasRegisters && bytes && reduced) shareActivations(plan, own(), most / subgroup)
    const count = (): number => iterations(own())
    // of a few elements each thread has one, and of words that it puts together
    const isPacking = Loops.reductions(end()).length > 0 && longestReduction(end()) < shortReduction
    if (!reduced && !(isCrowd && count() <= most) && !isPacking) vectoriseOutputs(plan, end, own())
    if (hasRegisters) tileLoads(plan, end, own())
    const isSpread = isSparse && number === last && !reduced && loadsOf(end()).length > 0
    const elements = isSpread ? nearestPowerOfTwo(count() * alike / (2 * processorsOf(profile))) : count()
    const wanted = isSpread ? crowdThreads : most
    if (longestReduction(end()) >= shortReduction) {
      const each = Math.min(
        (isCrowd ? largestPowerOfTwo : nearestPowerOfTwo)(wanted / elements),
        largestPowerOfTwo(profile.maxWorkgroupThreads / elements)
      )
      const threads = reduced ? Math.max(subgroup / 4, each) : each
      // every result of a thread is exchanged among those that share it
      const exchanged = mostExchanged / iterations(Loops.ofEnd(end()).filter((l) => l.axis === "UPCAST"))
      groupReductions(plan, largestPowerOfTwo(Math.min(subgroup, threads, exchanged)), {
        part: end,
        inside: isCrowd || !reduced ? 1 : bytes ? pair : lanes
      })
    }
    keepLoadsInFlight(plan, end, loadsInFlight(profile, isCrowd ? crowdThreads : 2 * stagingThreads))
    const group = Math.max(1, ...Loops.reductions(end()).map(Loops.groupOf))
    // some threads more than wanted are better than another pass
    const whole = Math.min(profile.maxWorkgroupThreads, somewhatMore * wanted) / group
    let left = elements <= whole ? elements : Math.floor(wanted / group)
    for (const loop of [...own()].reverse()) {
      const amount = largestDivisor(loop.size, left)
      if (plan.try(Opt.local(loop.id, amount))) left = Math.floor(left / amount)
    }
    if (number === last) shareOutputs(plan, profile, own())
  }
  unrollShortLoops(plan, maxUnrollGpu, hasRegisters && isInt8(plan.kernel) ? maxCopiesOfBytes : undefined)
}

/** Copies of a product of bytes, which takes few registers. */
const maxCopiesOfBytes = 32
/** Blocks of a row side by side, whose scales share a word. */
const pair = 2

/** A subgroup for each row of a product, and several rows for each thread, which reads an activation for all of them. */
const shareActivations = (plan: Plan, rows: ReadonlyArray<Loops.Loop>, atOnce: number): void => {
  const last = rows.at(-1)
  if (last !== undefined) plan.try(Opt.upcast(last.id, largestPower(last.size, Math.min(lanes, last.size / atOnce))))
}

/** Blocks of a row for each thread up to which it takes two rows. */
const fewBlocks = 2

/**
 * Rows of products of bytes that their workgroup has rounded itself: as many neighbouring threads for each as its blocks
 * can be divided among (5120 rows of 768 on an H200: 4.1 us, with floats 5.5; 3072 and 576 of 2048: 5.7 and 7.1).
 */
const shareRounded = (plan: Plan, part: () => UOp, threads: number): void => {
  const product = outermost(part()).find(isInt8)!
  const blocks = iterations(Loops.loopsOf(product))
  const group = maxGroup / groupInnermost(plan, product, maxGroup)
  for (const other of outermost(part()).filter((r) => !isInt8(r))) groupInnermost(plan, other, group)
  const rows = (): Loops.Loop => Loops.ofEnd(part()).findLast((l) => l.axis === "GLOBAL")!
  if (blocks / group <= fewBlocks) plan.try(Opt.upcast(rows().id, pair))
  plan.try(Opt.local(rows().id, largestDivisor(rows().size, threads / group)))
}

/** Outputs that remain become a loop of each workgroup, so that fewer of them stage the same, while the device is full. */
const shareOutputs = (plan: Plan, profile: DeviceProfile, remaining: ReadonlyArray<Loops.Loop>): void => {
  const full = 2 * processorsOf(profile)
  for (const loop of remaining.filter((l) => l.axis === "GLOBAL").reverse()) {
    const others = knownOutputs(plan.kernel) / loop.size
    if (others >= full) plan.try(Opt.loop(loop.id, loop.size))
  }
}

const readsOf = (end: UOp): ReadonlyArray<ReadonlySet<UOp>> =>
  Loops.reductions(end).flatMap(loadsOf).map((load) => openRanges(load.src[0]!))

/** Iterations of all short loops that one thread takes at most: of several heads and tokens it takes some. */
const mostShort = 8

/**
 * All iterations of short loops, in which some load stays the same, become one thread's, the longest first; and then two of a loop in which
 * another one does: more take registers that other workgroups need.
 */
const tileLoads = (plan: Plan, part: () => UOp, loops: ReadonlyArray<Loops.Loop>): void => {
  const isShared = (loop: Loops.Loop): boolean => readsOf(part()).some((open) => !open.has(loop.node))
  const short = loops.filter((loop) => loop.size <= lanes && isShared(loop))
  short.toSorted((a, b) => b.size - a.size).reduce(
    (taken, { id, size }) => taken * size <= mostShort && plan.try(Opt.upcast(id, size)) ? taken * size : taken,
    1
  )
  const other = loops.find((loop) => loop.size > lanes && isShared(loop))
  if (short.length > 0 && other !== undefined) plan.try(Opt.upcast(other.id, 2))
}
