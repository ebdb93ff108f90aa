/** Kernels that stage values in workgroup memory. */
import { type DeviceProfile, processorsOf, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { openRanges, rangeArg, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { loopsBetween } from "@tg/core-uop/Workgroup"
import { stepOf } from "@tg/pattern-matcher/Affine"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import {
  groupInnermost,
  groupReductions,
  largestGroup,
  longestReduction,
  maxGroup,
  outermost,
  shortReduction,
  usualGroup
} from "./Groups.ts"
import { chooseCascade, isCascade } from "./Cascades.ts"
import { keepLoadsInFlight, keepOpenLoadsInFlight, loadsOfMemory } from "./InFlight.ts"
import { hasManyRegisters, isInt8 } from "./Kinds.ts"
import { loadsInFlight, residentWorkgroups } from "./Occupancy.ts"
import { phaseThreads, type Place } from "./Place.ts"
import type { Plan } from "./Plan.ts"
import { knownOutputs } from "./Outputs.ts"
import { shareRows } from "./Rows.ts"
import { iterations, largestDivisor, largestPower, largestPowerOfTwo, nearestPowerOfTwo } from "./Sizes.ts"
import {
  fewestTerms,
  lanes,
  loadsOf,
  maxUnrollGpu,
  unrollShortLoops,
  vectoriseOutputs,
  vectoriseReductions
} from "./Vectors.ts"

/** Least threads of a workgroup that stages values: enough to hide the latency of its loads. */
const stagingThreads = 256
/** Resident workgroups of a processor for latency hiding: with 512 threads each on an H200. */
const besideEachOther = 4
/** Threads where all workgroups stage the same values, which are then few; other members of a launch may need no more. */
const aloneThreads = 64
const somewhatMore = 1.25
/** Most partial results in an exchange: results times the threads of each. */
const mostExchanged = 256
/**
 * Threads where workgroups exceed the resident ones, as along the pieces of a context, and saturating memory needs more loads in flight
 * than usual code of so few threads has: fewer threads, each with more loads in flight and fewer to wait for at barriers (attention
 * over 4000 positions on an H200: 26 us; with twice the threads 54).
 */
const crowdThreads = 128
const needsLoads = (profile: DeviceProfile): boolean => loadsInFlight(profile, crowdThreads) > maxUnrollGpu

/**
 * Of how many tokens a product of bytes has workgroups, each of which reads its rows again; those of one token take as many threads as if it
 * was alone. The tokens of rows that an index in memory names, as the experts of a few tokens are named, are not counted: infinitely many.
 */
const tokensApart = (kernel: UOp): number => {
  if (!isInt8(kernel)) return 1
  const between = loopsBetween(kernel)
  const loads = loadsOf(kernel)
  if (loads.some((load) => loadsOf(load.src[0]!).length > 0)) return Infinity
  const isOfRow = (range: UOp): boolean => rangeArg(range).axis === "LOOP" || rangeArg(range).axis === "GLOBAL"
  const rows = loads.map((load) => openRanges(load.src[0]!))
    .filter((open) => [...open].some((range) => !between.has(range) && isOfRow(range)))
  return iterations(
    [...between].filter((range) => rows.length > 0 && rows.every((open) => !open.has(range))).map(Loops.toLoop)
  )
}

/** Threads of each of `alike` workgroups. */
const threadsFor = (alike: number, kernel: UOp, profile: DeviceProfile): number => {
  if (alike === 1) return aloneThreads
  if (!Number.isFinite(alike) && needsLoads(profile)) return crowdThreads
  const most = quantitiesOf(profile).residentThreads / besideEachOther
  const wanted = Math.min(most, profile.saturatingThreads / alike * tokensApart(kernel))
  return Math.max(stagingThreads, largestPowerOfTwo(wanted))
}

/**
 * Opts of a kernel that stages values in workgroup memory. Each stage spreads its elements, and the reductions inside of them,
 * over all threads; so does the END that stores. A workgroup computes as many outputs as leave the device saturated.
 */
export const chooseStaged = (plan: Plan, profile: DeviceProfile, place: Place): void => {
  // a symbolic loop is taken to have enough workgroups
  const alike = [...loopsBetween(plan.kernel)].map((r) => Loops.toLoop(r))
    .reduce((n, l) => n * (l.isSymbolic ? Infinity : l.size), 1)
  const isCrowd = !Number.isFinite(alike) && needsLoads(profile)
  const hasRegisters = hasManyRegisters(profile)
  const last = plan.kernel.src.length - 1
  /** Whether every workgroup quantises the whole activation vector for its rows. */
  const rounds = alike === 1 && outermost(plan.kernel.src[last]!).some(isInt8)
  /** Threads that tiles of outputs are chosen for. */
  const narrow = Math.min(
    rounds ? stagingThreads : threadsFor(alike, plan.kernel, profile),
    profile.maxWorkgroupThreads
  )
  const subgroup = usualGroup(profile, narrow)
  if (isCrowd && hasRegisters && isCascade(plan.kernel)) return chooseCascade(plan, narrow, profile)
  const most = isCrowd && place === "phase" ? Math.max(narrow, phaseThreads(profile)) : narrow
  /** Fewer workgroups than processors: each computes less. */
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
    const isOfRows = isCrowd && readsRows(end())
    if (number === last && reduced && longestReduction(end()) >= shortReduction && !isOfRows) {
      shareRows(plan, profile, { group: subgroup, threads: Math.min(2 * stagingThreads, profile.maxWorkgroupThreads) })
      break
    }
    if (hasRegisters && bytes && reduced) shareActivations(plan, own(), most / subgroup)
    const count = (): number => iterations(own())
    // few elements, or words that are packed from several values: one for each thread, no vectors
    const isPacking = Loops.reductions(end()).length > 0 && longestReduction(end()) < shortReduction
    if (!reduced && !(isCrowd && count() <= narrow) && !isPacking) vectoriseOutputs(plan, end, own())
    // where a thread has one element at most, sharing loads would leave threads idle
    if (hasRegisters && count() > narrow) tileLoads(plan, end, own())
    const isSpread = isSparse && number === last && !reduced && loadsOf(end()).length > 0
    const elements = isSpread ? nearestPowerOfTwo(count() * alike / (2 * processorsOf(profile))) : count()
    const wanted = isSpread ? crowdThreads : most
    if (longestReduction(end()) >= shortReduction) {
      const each = Math.min(
        (isCrowd ? largestPowerOfTwo : nearestPowerOfTwo)(wanted / elements),
        largestPowerOfTwo(profile.maxWorkgroupThreads / elements)
      )
      const threads = reduced ? Math.max(subgroup / 4, each) : each
      // every result of a thread is exchanged among its group
      const exchanged = mostExchanged / iterations(Loops.ofEnd(end()).filter((l) => l.axis === "UPCAST"))
      groupReductions(plan, largestPowerOfTwo(Math.min(subgroup, threads, exchanged)), {
        part: end,
        ...isFollowed(plan.kernel, number) ? { leastPower: leastShared } : {},
        inside: isOfRows ? subgroup : isCrowd || !reduced ? 1 : bytes ? pair : lanes
      })
    }
    const inFlight = loadsInFlight(profile, isCrowd ? most : 2 * stagingThreads)
    keepLoadsInFlight(plan, end, inFlight, most > narrow ? loadsOfMemory : undefined)
    // of a crowd other workgroups hide the latency
    if (!isCrowd) keepOpenLoadsInFlight(plan, end, loadsInFlight(profile, 2 * stagingThreads))
    const group = largestGroup(end())
    // a few more threads than wanted are better than a second iteration
    const whole = Math.min(profile.maxWorkgroupThreads, somewhatMore * wanted) / group
    let left = elements <= whole ? elements : Math.floor(wanted / group)
    for (const loop of [...own()].reverse()) {
      const amount = largestDivisor(loop.size, left)
      if (plan.try(Opt.local(loop.id, amount))) left = Math.floor(left / amount)
    }
    if (number === last) shareOutputs(plan, profile, own())
  }
  const areResident = alike <= residentWorkgroups(profile, most)
  unrollShortLoops(plan, maxUnrollGpu, hasRegisters ? (loop) => copiesOf(plan.kernel, loop, areResident) : undefined)
}

/**
 * Threads of a reduction in front of another END's, as a power of two, at least: other divisors divide none of the threads that this one would have (the place of the largest
 * of 154880 logits of 8 tokens on an H100: 61 us with 20 threads for the largest of 160 parts, and one for each part).
 */
const leastShared = 8
/** Whether an END behind this one has a reduction that is split over threads. */
const isFollowed = (kernel: UOp, number: number): boolean =>
  kernel.src.slice(number + 1).some((end) => longestReduction(end) >= shortReduction)

/** Whether reductions read rows of floats as vectors, as scores of a chunk: then neighbouring threads read neighbours. */
const readsRows = (end: UOp): boolean =>
  outermost(end).every((reduction) => {
    const inner = Loops.loopsOf(reduction).findLast(({ axis }) => axis === "REDUCE")
    const loads = loadsOf(reduction).filter((load) => inner !== undefined && openRanges(load).has(inner.node))
    return inner !== undefined && inner.size >= shortReduction && loads.length > 0 &&
      loads.every((load) => load.dtype === DType.f32 && stepOf(accessOf(load).at, inner.node) === lanes)
  })

/** Unroll limit: what stands in no loop is loaded in front of the barriers (`devectorize`). */
const maxCopies = 32
/**
 * The same where a thread has one result and all workgroups are resident: the weights of GLM-4.7-Flash's value projection are then all on their way (a step of an
 * H100 takes 2.90 ms instead of 2.99). More workgroups, as those of four tokens, would run in waves, since each takes more registers (11.3 us a layer instead of 9.4).
 */
const copiesOfOne = 64
/** Whether a thread has one result of each END in which a reduction runs over this loop. */
const isOfOneResult = (kernel: UOp, id: number): boolean =>
  kernel.src.filter((end) => Loops.reductions(end).some((r) => Loops.loopsOf(r).some((l) => l.id === id)))
    .every((end) => Loops.ofEnd(end).every(({ axis }) => axis !== "UPCAST"))
/** Copies of a loop's body, at most. */
export const copiesOf = (kernel: UOp, loop: number, areResident: boolean): number =>
  areResident && isOfOneResult(kernel, loop) ? copiesOfOne : maxCopies
/** Blocks of a row side by side, whose scales share a word. */
const pair = 2

/** Upcasts the rows of a product, which then reuse an activation, as far as `atOnce` rows remain for a workgroup's subgroups. */
const shareActivations = (plan: Plan, rows: ReadonlyArray<Loops.Loop>, atOnce: number): void => {
  const last = rows.at(-1)
  if (last !== undefined) plan.try(Opt.upcast(last.id, largestPower(last.size, Math.min(lanes, last.size / atOnce))))
}

/** Up to so many blocks of a row for each thread, it takes two rows. */
const fewBlocks = 2

/**
 * Products of bytes whose activation the workgroup has quantised itself: for each row as many neighbouring threads as divide its
 * blocks (5120 rows of 768 on an H200: 4.1 us, with floats 5.5; 3072 and 576 of 2048: 5.7 and 7.1).
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

/** Remaining outputs become a serial loop of each workgroup while the device stays saturated, so that fewer workgroups stage the same. */
const shareOutputs = (plan: Plan, profile: DeviceProfile, remaining: ReadonlyArray<Loops.Loop>): void => {
  const full = 2 * processorsOf(profile)
  for (const loop of remaining.filter((l) => l.axis === "GLOBAL").reverse()) {
    const others = knownOutputs(plan.kernel) / loop.size
    if (others >= full) plan.try(Opt.loop(loop.id, loop.size))
  }
}

const readsOf = (end: UOp): ReadonlyArray<ReadonlySet<UOp>> =>
  Loops.reductions(end).flatMap(loadsOf).map((load) => openRanges(load.src[0]!))

/** Most iterations of all short loops in one register tile: of several heads and tokens it takes some. */
const mostShort = 8

/**
 * Register tiling over short loops in which some load is invariant, the longest first; then by two over a longer one: more would cost
 * occupancy.
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
