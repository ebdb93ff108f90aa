import { type DeviceProfile, processorsOf, Profile } from "@tg/core-uop/DeviceProfile"
import { openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import { loopsBetween } from "@tg/core-uop/Workgroup"
import { stepOf } from "@tg/pattern-matcher/Affine"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { Context, Effect, Layer } from "effect"
import { loopOffGrid } from "./Grid.ts"
import { Plan } from "./Plan.ts"
import { chooseTiles, chooseTilesCpu, isLargeDevice } from "./Tiles.ts"

const lanes = 4
/** Copies of a reduction's body that still compile quickly and keep several loads in flight. */
const maxUnrollCpu = 8
/** Shader compilers take more than linear time in straight code; beyond this some need minutes. */
const maxUnrollGpu = 4
/** Threads that share one reduction: a subgroup, where there are subgroups. */
const maxGroup = 32
const groupWithoutSubgroups = 16
/** Below this many iterations a reduction is faster in one thread than shared. */
const shortReduction = 8
/** From so many threads on, a row is shared down to the words of its blocks: this many lanes inside of a block. */
const wideRow = 128
const coalescedLanes = 8
/** Subgroups that share one row: every thread adds up their partial results. */
const mostSubgroups = 8
/** Threads of a workgroup that computes rows, when that leaves at least `manyWorkgroups`. */
const rowThreads = 128
/** Several rows per thread still pay with this fraction of the threads that saturate the device. */
const keptThreads = 8
const manyWorkgroups = 128
/** The same of a large device. */
const keptOfLarge = 4
/** Rows for each processor of a large device that are many; terms of a long one, and of a thread's part. */
const manyRows = 4
const longRow = 2048
const fewestTerms = 8
const mostTerms = 24
/** Threads of a workgroup for products of bytes there. */
const byteThreads = 256
/** Threads of many rows, beyond which each computes two: times those that saturate the device. */
const fullTimes = 8
const pair = 2
/** Outputs that one thread computes of the same values, and how many others there are at least. */
const mostAlike = 16
const othersAlike = 16
const maxLocal = 64

/** Loads from buffers; workgroup memory is as fast in any order. */
const loadsOf = (node: UOp): ReadonlyArray<UOp> =>
  toposort(node).filter((n) => n.op === "LOAD" && n.src[0]!.src[0]!.op === "PARAM")

/** Loads that become one vector access along the loop, less those that fall apart into single ones. */
const contiguity = (loads: ReadonlyArray<UOp>, loop: Loops.Loop): number =>
  loads.reduce((score, load) => {
    const step = stepOf(load.src[0]!.src[1]!, loop.node)
    return step === 1 ? score + 1 : step === 0 ? score : score - 1
  }, 0)

const isVectorisable = (loop: Loops.Loop): boolean => !loop.isSymbolic && loop.size % lanes === 0

/** The loop along which a body vectorises best, if along any. */
const bestLoop = (loads: ReadonlyArray<UOp>, loops: ReadonlyArray<Loops.Loop>): Loops.Loop | undefined => {
  const scored = loops.filter(isVectorisable).map((loop) => ({ loop, score: contiguity(loads, loop) }))
  const best = scored.sort((a, b) => b.score - a.score || b.loop.id - a.loop.id)[0]
  return best !== undefined && best.score > 0 ? best.loop : undefined
}

/** Largest divisor of `size` that is at most `limit`, among all or among the powers of two. */
const largestDivisor = (size: number, limit: number): number => {
  for (let d = Math.min(size, limit); d > 1; d--) if (size % d === 0) return d
  return 1
}
const largestPower = (size: number, limit: number): number => {
  let d = 1
  while (d * 2 <= limit && size % (d * 2) === 0) d *= 2
  return d
}

/** Whether a reduction runs once per thread and not once per iteration of another. */
const isOutermost = (kernel: UOp, reduction: UOp): boolean =>
  !Loops.reductions(kernel).some((outer) => Loops.isInside(reduction, outer))

/** Vector lanes along the reductions where loads are contiguous there; returns whether any was. */
const vectoriseReductions = (plan: Plan, part: () => UOp = () => plan.kernel): boolean => {
  let any = false
  for (const number of Loops.reductions(part()).keys()) {
    const reduction = Loops.reductions(part())[number]!
    const loops = Loops.loopsOf(reduction)
    // reductions that share loops are vectorised together
    if (loops.some((l) => l.axis === "UNROLL")) continue
    const loop = bestLoop(loadsOf(reduction.src[0]!), loops.filter((l) => l.axis === "REDUCE"))
    if (loop !== undefined) any = plan.try(Opt.unroll(loop.id, lanes)) || any
  }
  return any
}

/** Short inner loops become straight code: packed integers are then shifted by constants. */
const unrollShortLoops = (plan: Plan, maxUnroll: number, maxCopies = lanes * maxUnroll): void => {
  for (const loop of Loops.all(plan.kernel).filter((l) => l.axis === "REDUCE" && !l.isSymbolic).reverse()) {
    const copies = Loops.copies(plan.kernel) * loop.size
    if (copies <= maxCopies && loop.size <= maxUnroll) plan.try(Opt.unroll(loop.id, loop.size))
  }
}

/** Lanes along the outputs, where the store and the loads are contiguous. */
const vectoriseOutputs = (
  plan: Plan,
  part: () => UOp = () => plan.kernel.src[0]!,
  loops: ReadonlyArray<Loops.Loop> = Loops.outputs(plan.kernel).filter((l) => l.axis === "GLOBAL")
): boolean => {
  const store = part().src[0]!
  const contiguous = loops.filter((l) => isVectorisable(l) && stepOf(store.src[0]!.src[1]!, l.node) === 1)
  const loop = bestLoop(loadsOf(store.src[1]!), contiguous) ?? contiguous[0]
  return loop !== undefined && plan.try(Opt.upcast(loop.id, lanes))
}

/** Iterations a symbolic loop is taken to have: enough to be worth sharing, whatever the context. */
const symbolicIterations = 256

/**
 * Gives each outermost reduction up to `threads` threads, loop by loop from the outside: neighbouring threads then read
 * neighbouring blocks. The first `inside` of them go to the innermost loops, so that neighbours read neighbouring
 * activations and share words of the weight. A loop of unknown length is shared last. Where the lengths have few
 * divisors that are powers of two, other numbers of threads are better than few.
 */
const groupReductions = (
  plan: Plan,
  threads: number,
  { inside = 1, part = () => plan.kernel }: { readonly inside?: number; readonly part?: () => UOp } = {}
): void => {
  // the longest first: of two groups one has to divide the other
  const lengths = Loops.reductions(part()).map((r) => Loops.loopsOf(r).reduce((n, l) => n * l.size, 1))
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
    if (serial.length === known.length && known.reduce((n, l) => n * largestPower(l.size, left), 1) < left / 2) {
      for (const loop of known.toReversed()) share(loop, left, largestDivisor)
      if (shared.size > 0) continue
    }
    const reserved = left / Math.min(left, inside)
    for (const loop of known.slice(1).reverse()) share(loop, Math.floor(left / reserved))
    for (const loop of [...known, ...serial.filter((l) => l.isSymbolic)]) share(loop, left)
  }
}

/** Iterations of the longest reduction, over those of its loops that count. */
const longest = (kernel: UOp, counts: (loop: Loops.Loop) => boolean): number =>
  Math.max(
    1,
    ...Loops.reductions(kernel).map((r) =>
      Loops.loopsOf(r).filter(counts).reduce((n, l) => n * (l.isSymbolic ? symbolicIterations : l.size), 1)
    )
  )

/** Iterations of the longest reduction that one thread would do alone. */
const longestReduction = (kernel: UOp): number => longest(kernel, (l) => l.axis === "REDUCE")

/** Terms of the longest sum. */
const terms = (kernel: UOp): number => longest(kernel, () => true)

/** Workgroups there would be: a symbolic number of rows may be one. */
const knownOutputs = (kernel: UOp): number =>
  Loops.outputs(kernel).filter((l) => l.axis === "GLOBAL" && !l.isSymbolic).reduce((n, l) => n * l.size, 1)

/** Outputs that one thread computes at once. */
const upcastOf = (kernel: UOp): number =>
  Loops.outputs(kernel).filter((l) => l.axis === "UPCAST").reduce((n, l) => n * l.size, 1)

/** Threads over neighbouring outputs, as long as enough workgroups remain. */
const localOutputs = (plan: Plan, most: number): void => {
  const last = Loops.outputs(plan.kernel).filter((l) => l.axis === "GLOBAL" && !l.isSymbolic).at(-1)
  if (last !== undefined) plan.try(Opt.local(last.id, largestDivisor(last.size, most)))
}

/**
 * Outputs of which one thread computes all, if many others remain: no load depends on which of them it is, so other threads
 * would load the same again.
 */
const upcastAlike = (plan: Plan): void => {
  const loads = loadsOf(plan.kernel).map((load) => openRanges(load.src[0]!))
  for (const loop of Loops.outputs(plan.kernel).filter((l) => l.axis === "GLOBAL" && !l.isSymbolic)) {
    const isAlike = loads.length > 0 && loads.every((open) => !open.has(loop.node))
    if (isAlike && loop.size <= mostAlike && knownOutputs(plan.kernel) >= loop.size * othersAlike) {
      plan.try(Opt.upcast(loop.id, loop.size))
    }
  }
}

/** Rows per thread: what does not depend on the row is then read once for several, if enough threads remain. */
const upcastRows = (plan: Plan, enough: (rows: number) => boolean): void => {
  const last = Loops.outputs(plan.kernel).filter((l) => l.axis === "GLOBAL" && !l.isSymbolic).at(-1)
  const amount = last === undefined ? undefined : [4, 2].find((n) => last.size % n === 0 && enough(n))
  if (amount !== undefined) plan.try(Opt.upcast(last!.id, amount))
}

/** Threads for each row of a product of floats on a large device. */
const threadsOfRow = (rows: number, terms: number, profile: DeviceProfile): number => {
  const most = Math.max(maxGroup, terms / (rows < processorsOf(profile) ? fewestTerms : 2 * fewestTerms))
  // rows for less than the device
  if (rows < manyRows * processorsOf(profile)) return Math.min(most, 2 * profile.saturatingThreads / rows)
  const isFull = rows * maxGroup >= fullTimes * profile.saturatingThreads
  return terms >= longRow && !isFull
    ? wideRow
    : Math.min(maxGroup, Math.max(terms / mostTerms, profile.saturatingThreads / rows))
}

/**
 * A matrix-vector product: a group of threads for each row, several rows for each group, several groups in a workgroup.
 * Few rows get larger groups, so that the device is full.
 */
const shareRows = (
  plan: Plan,
  profile: DeviceProfile,
  { group, threads }: { readonly group: number; readonly threads: number }
): void => {
  const rows = knownOutputs(plan.kernel)
  const isLarge = isLargeDevice(profile)
  const isInt8 = toposort(plan.kernel).some((n) => n.op === "DOT4I8")
  const length = terms(plan.kernel)
  const isFull = rows * group >= fullTimes * profile.saturatingThreads
  const widest = Math.min(2 * threads, mostSubgroups * (profile.subgroupSize ?? 0))
  // products of bytes read so little for a row that sharing it further, or rows among threads, hardly pays
  const wanted = isInt8
    ? isLarge && !isFull ? 2 * group : group
    : Math.min(widest, isLarge ? threadsOfRow(rows, length, profile) : 2 * profile.saturatingThreads / rows)
  const wide = Math.max(isLarge ? 1 : group, largestPowerOfTwo(wanted))
  groupReductions(plan, wide, { inside: wide > wideRow || (!isLarge && wide === wideRow) ? coalescedLanes : 1 })
  const reached = Math.max(...Loops.reductions(plan.kernel).map(Loops.groupOf))
  if (isInt8 && isLarge && isFull) {
    upcastRows(plan, (each) => each === pair)
    return
  }
  if (!isInt8 && (isLarge || wide === group)) {
    const kept = profile.saturatingThreads / (isLarge ? keptOfLarge : keptThreads)
    const most = isLarge && length < longRow ? pair : lanes
    upcastRows(plan, (each) => each <= most && rows * wide / each >= kept)
  }
  // one subgroup for a row, or for several short ones, needs no others beside it
  const most = isLarge && (isInt8 ? reached <= group : reached < group)
    ? group
    : !isInt8
    ? threads
    : isLarge
    ? byteThreads
    : threads / 2
  localOutputs(
    plan,
    Math.min(Math.floor(most / (isLarge ? reached : wide)), Math.floor(knownOutputs(plan.kernel) / manyWorkgroups))
  )
}

/** Two iterations of a long loop at once, where that is not too much code: what a loop costs is then paid half as often. */
const unrollInnermost = (plan: Plan, maxCopies: number): void => {
  const innermost = Loops.all(plan.kernel).filter((l) => l.axis === "REDUCE" && !l.isSymbolic).at(-1)
  if (innermost !== undefined && 2 * Loops.copies(plan.kernel) <= maxCopies) plan.try(Opt.unroll(innermost.id, 2))
}

/** With fewer groups of rows than this, threads of a CPU have too little to divide. */
const fewestRows = 16

/**
 * Rows that share what else they read, each far from the others: then each is read as one long stream. Neighbouring rows
 * would be streams of a row's length, which processors fetch ahead at less than half the speed (10 GB/s instead of 25 for
 * four rows of 1 KB, on a server's core).
 */
const spreadRows = (plan: Plan): void => {
  const loops = Loops.outputs(plan.kernel).filter((l) => l.axis === "GLOBAL" && !l.isSymbolic)
  for (const amount of [4, 2]) {
    const loop = loops.findLast((l) => l.size % amount === 0)
    if (loop === undefined || knownOutputs(plan.kernel) / amount < fewestRows) continue
    plan.try(Opt.spread(loop.id, amount))
    return
  }
}

/** Few threads: short vectors, rows that share what they load, straight inner loops. */
const chooseCpu = (plan: Plan): void => {
  const reduced = vectoriseReductions(plan)
  if (reduced) spreadRows(plan)
  else vectoriseOutputs(plan)
  const maxCopies = lanes * maxUnrollCpu * upcastOf(plan.kernel)
  unrollShortLoops(plan, maxUnrollCpu, maxCopies)
  if (reduced) unrollInnermost(plan, maxCopies)
}

const chooseGpu = (plan: Plan, profile: DeviceProfile): void => {
  upcastAlike(plan)
  const reduced = vectoriseReductions(plan)
  if (!reduced) vectoriseOutputs(plan)
  const group = Math.min(maxGroup, profile.subgroupSize ?? groupWithoutSubgroups, profile.maxWorkgroupThreads)
  if (longestReduction(plan.kernel) < shortReduction) {
    localOutputs(plan, Math.min(maxLocal, profile.maxWorkgroupThreads))
  } else {
    // lanes along the outputs read along them: they get threads first
    if (!reduced) localOutputs(plan, Math.floor(group / 2))
    if (reduced) shareRows(plan, profile, { group, threads: Math.min(rowThreads, profile.maxWorkgroupThreads) })
    else groupReductions(plan, group)
  }
  unrollShortLoops(plan, maxUnrollGpu)
}

/** Least threads of a workgroup that stages values: enough to hide the loads of its stages from each other. */
const stagingThreads = 256
/** A large device runs several workgroups of so many beside each other on a processor. */
const mostStaging = 512
/** Threads where all workgroups stage the same, which is then little; kernels beside it in a launch may want no more. */
const aloneThreads = 64
const somewhatMore = 1.25
/** Results times threads that share them. */
const mostExchanged = 256
/**
 * Threads where a large device has more workgroups than it runs at once, as along the pieces of a context: fewer threads,
 * each with more loads in flight and no other thread to wait for (attention over 4000 positions on an H200: 26 us; with
 * twice the threads 54).
 */
const crowdThreads = 128

/**
 * A kernel that stages values in workgroup memory. Each stage spreads its elements, and the reductions inside of them,
 * over all threads; so does the END that stores, whose outputs a workgroup shares as far as the device stays full.
 */
const chooseStaged = (plan: Plan, profile: DeviceProfile): void => {
  // along a loop of unknown length there are enough workgroups
  const alike = [...loopsBetween(plan.kernel)].map((r) => Loops.toLoop(r))
    .reduce((n, l) => n * (l.isSymbolic ? Infinity : l.size), 1)
  const isLarge = isLargeDevice(profile)
  const enough = alike === 1
    ? aloneThreads
    : Math.max(stagingThreads, largestPowerOfTwo(profile.saturatingThreads / alike))
  const isCrowd = isLarge && !Number.isFinite(alike)
  const most = Math.min(
    isCrowd
      ? crowdThreads
      : !Number.isFinite(alike)
      ? stagingThreads
      : isLarge
      ? Math.min(enough, mostStaging)
      : enough,
    profile.maxWorkgroupThreads
  )
  const subgroup = Math.min(maxGroup, profile.subgroupSize ?? groupWithoutSubgroups, most)
  const isInt8 = toposort(plan.kernel).some((n) => n.op === "DOT4I8")
  /** Workgroups of a large device that would leave processors idle, which share what they compute further. */
  const isSparse = isLarge && alike > 1 && alike < processorsOf(profile)
  const last = plan.kernel.src.length - 1
  for (let number = 0; number <= last; number++) {
    const end = (): UOp => plan.kernel.src[number]!
    const between = loopsBetween(plan.kernel)
    const own = (): ReadonlyArray<Loops.Loop> =>
      Loops.ofEnd(end()).filter((l) =>
        !between.has(l.node) && !l.isSymbolic && (l.axis === "LOOP" || l.axis === "GLOBAL")
      )
    const reduced = vectoriseReductions(plan, end)
    if (number === last && reduced && longestReduction(end()) >= shortReduction) {
      shareRows(plan, profile, { group: subgroup, threads: Math.min(2 * stagingThreads, profile.maxWorkgroupThreads) })
      break
    }
    const count = (): number => own().reduce((n, l) => n * l.size, 1)
    // of a few elements each thread has one
    if (!reduced && !(isCrowd && count() <= most)) vectoriseOutputs(plan, end, own())
    if (isLarge) tileLoads(plan, end, own())
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
      const exchanged = mostExchanged / Loops.ofEnd(end()).reduce((n, l) => l.axis === "UPCAST" ? n * l.size : n, 1)
      groupReductions(plan, largestPowerOfTwo(Math.min(subgroup, threads, exchanged)), {
        part: end,
        inside: isLarge && !isCrowd && reduced && !isInt8 ? lanes : 1
      })
    }
    if (isLarge) keepLoadsInFlight(plan, end, isCrowd ? crowdLoads : fewLoads)
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
  unrollShortLoops(plan, maxUnrollGpu)
}

/** Loads that a thread waits for at once, and results for which its registers have room beside them. */
const fewLoads = 4
const crowdLoads = 16
const mostResults = 256

/** Long loops over memory in parts that are written out: a thread then waits for several loads at once. */
const keepLoadsInFlight = (plan: Plan, part: () => UOp, most: number): void => {
  const upcast = Loops.ofEnd(part()).filter((l) => l.axis === "UPCAST")
  const product = (loops: ReadonlyArray<Loops.Loop>): number => loops.reduce((n, l) => n * l.size, 1)
  for (const reduction of Loops.reductions(part())) {
    const loads = loadsOf(reduction).reduce((n, load) => {
      const place = load.src[0]!.src[1]!
      const open = openRanges(place)
      // neighbours are loaded at once
      return n + product(upcast.filter((l) => open.has(l.node) && stepOf(place, l.node) !== 1))
    }, 0)
    const loop = Loops.loopsOf(reduction).find((l) => l.axis === "REDUCE" && !l.isSymbolic && l.size > maxUnrollGpu)
    if (loads === 0 || loop === undefined) continue
    plan.try(Opt.unroll(loop.id, largestDivisor(loop.size, Math.min(most / loads, mostResults / product(upcast)))))
  }
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

/**
 * All iterations of short loops, in which some load stays the same, become one thread's; and then two of a loop in which
 * another one does: more take registers that other workgroups need.
 */
const tileLoads = (plan: Plan, part: () => UOp, loops: ReadonlyArray<Loops.Loop>): void => {
  const isShared = (loop: Loops.Loop): boolean => readsOf(part()).some((open) => !open.has(loop.node))
  const short = loops.filter((loop) => loop.size <= lanes && isShared(loop))
  for (const loop of short) plan.try(Opt.upcast(loop.id, loop.size))
  const other = loops.find((loop) => loop.size > lanes && isShared(loop))
  if (short.length > 0 && other !== undefined) plan.try(Opt.upcast(other.id, pair))
}

const nearestPowerOfTwo = (x: number): number => 2 ** Math.max(0, Math.round(Math.log2(x)))
const largestPowerOfTwo = (limit: number): number => 2 ** Math.floor(Math.log2(Math.max(1, limit)))

/** Legal opts for a kernel (spec `kernel`) on a device. Depends on nothing else: same kernel, same profile, same list. */
export const choose = (kernel: UOp, profile: DeviceProfile): ReadonlyArray<Opt.Opt> => {
  const plan = new Plan(kernel, profile)
  if (profile.kind === "cpu") {
    if (!chooseTilesCpu(plan)) chooseCpu(plan)
    return plan.opts
  }
  if (kernel.src.length > 1) chooseStaged(plan, profile)
  else if (!chooseTiles(plan, profile)) chooseGpu(plan, profile)
  fitGrid(plan, profile)
  return plan.opts
}

/** Loops for which the grid has no room run inside of the threads. */
const fitGrid = (plan: Plan, { maxGrid }: DeviceProfile): void => {
  for (;;) {
    const loop = loopOffGrid(plan.kernel, maxGrid)
    if (loop === undefined || !plan.try(Opt.loop(loop.id, loop.size))) return
  }
}

/** The heuristics stage: kernel and device profile to a list of opts. */
export class Heuristics extends Context.Service<Heuristics, {
  readonly choose: (kernel: UOp) => Effect.Effect<ReadonlyArray<Opt.Opt>>
}>()("@tg/heuristics/Heuristics") {
  /** Chooses for the device of the `DeviceProfile` service. */
  static readonly layer = Layer.effect(
    Heuristics,
    Effect.gen(function*() {
      const profile = yield* Profile
      return Heuristics.of({
        choose: Effect.fn("Heuristics.choose")((kernel) => Effect.sync(() => choose(kernel, profile)))
      })
    })
  )

  /** Never optimises: for bisecting a miscompile, and as a mock. */
  static readonly layerNone = Layer.succeed(Heuristics, { choose: () => Effect.succeed([]) })
}
