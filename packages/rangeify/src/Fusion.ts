import { type DeviceProfile, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { elementwise } from "@tg/core-uop/Op"
import { digest, openRanges, rangeArg, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { isStage, loopsBetween } from "@tg/core-uop/Workgroup"
import { Context } from "effect"
import { chain } from "./Cost.ts"
import { productsIn, tiledLoops, tiledProduct } from "./MatrixTiles.ts"
import { type Iterations, loadsBuffer, type Phase, tileTokens, untiled } from "./Tiles.ts"
import { type SizeOf, trafficOf, usualSize } from "./Traffic.ts"
import { transcendental } from "./Values.ts"

export { type SizeOf, traffic, usualSize } from "./Traffic.ts"

/** What a kernel of a schedule costs, in microseconds on one device. Compared, never added to measurements. */
export interface FusionCost {
  /** For cache keys: equal for costs that are equal for every kernel. */
  readonly key: string
  /** Workgroup memory that staged values may take, in bytes. */
  readonly maxWorkgroupBytes: number
  /** `sizeOf` is what each loop runs, where that is known; without it `usualSize`, for which programs are compiled. */
  readonly kernelMicros: (kernel: UOp, sizeOf?: SizeOf, isTogether?: boolean) => KernelMicros
}

/** The parts of what a kernel (spec `kernel`) costs. */
export interface KernelMicros {
  /** Latency: the launch, barriers, dependent loads. Kernels of one launch wait together. */
  readonly wait: number
  /** Computing: what workgroups stage, and what they compute with it. */
  readonly work: number
  /** Memory traffic, each byte counted once; 0 by default. */
  readonly transfer?: number | undefined
  /** Waves of workgroups, of which one computes while the next one loads; 1 by default. */
  readonly waves?: number | undefined
}

/**
 * Outputs that a workgroup computes: elements that its threads compute alone, or rows of a matrix-vector product, as many
 * as keep the device full.
 */
const leastRows = 8
const mostRows = 64
const outputsPerWorkgroup = 4096
/** From this length on a reduction is split over the threads of a workgroup. */
const longReduction = 256

/** Threads of the workgroups that are counted. A processor's occupancy is as many of them as it holds threads. */
const workgroupThreads = 256
/** The part of a wave's latency that is not hidden by other workgroups. */
const overlap = 0.25

const transcendentalOperations = 8

/** Reuse of a loaded value, in registers or in the cache of neighbouring threads: so many outputs share one load. */
const together = 4

const none: ReadonlySet<UOp> = new Set()

const iterationsBy = (sizeOf: SizeOf): Iterations => (ranges, without = none) => {
  let n = 1
  for (const range of ranges) if (!without.has(range)) n *= sizeOf(range.src[0]!)
  return n
}

const noUnits: ReadonlyMap<UOp, number> = new Map()

/**
 * Operations and loaded bytes of one END, for one iteration of the loops in `outside`. Values that are invariant in one of the END's
 * loops, or of those `around` it, are computed again in each iteration (threads and workgroups share nothing), except in `tiled` loops, of
 * which one thread computes so many iterations; loads are shared by `together` of them.
 */
const workOf = (
  { end, nodes }: Phase,
  { around = none, iterations, outside, tiled = untiled, units = noUnits }: {
    readonly iterations: Iterations
    readonly outside: ReadonlySet<UOp>
    readonly around?: ReadonlySet<UOp>
    readonly tiled?: ReadonlyMap<UOp, number>
    /** Operations of what matrix units compute. */
    readonly units?: ReadonlyMap<UOp, number>
  }
): { readonly operations: number; readonly bytes: number } => {
  let operations = 0
  let bytes = 0
  const own = [...new Set([...end.src.slice(1), ...around])].filter((r) => !outside.has(r) && !tiled.has(r))
  // most nodes share the set of their loops with others
  const known = new Map<ReadonlySet<UOp>, { readonly repeats: number; readonly once: number }>()
  const timesOf = (open: ReadonlySet<UOp>) => {
    const before = known.get(open)
    if (before !== undefined) return before
    const tiles = [...tiled].filter(([loop]) => !open.has(loop)).reduce(
      (n, [loop, tile]) => n * iterations([loop]) / tile,
      1
    )
    const times = { repeats: iterations(own, open) * tiles, once: iterations(open, outside) }
    known.set(open, times)
    return times
  }
  for (const node of nodes) {
    const isLoad = loadsBuffer(node)
    if (!isLoad && (!elementwise.has(node.op) || node.dtype === DType.index)) continue
    const { once, repeats } = timesOf(openRanges(node))
    if (isLoad) bytes += 4 * once * Math.max(1, repeats / together)
    else {operations += once * repeats *
        (units.get(node) ?? (transcendental.has(node.op) ? transcendentalOperations : 1))}
  }
  return { operations, bytes }
}

/** Rows of a register tile that share what they load. */
const tileRows = 4

/**
 * The rows that a workgroup computes as a whole, as heads and tokens behind a piece of a context, with those of a register tile: what they read is
 * loaded and unpacked once for these.
 */
const tiledRows = (
  { end, nodes }: Phase,
  between: ReadonlySet<UOp>,
  iterations: Iterations
): ReadonlyMap<UOp, number> => {
  const read = nodes.filter(loadsBuffer).map((load) => openRanges(accessOf(load).at))
  const rows = end.src.slice(1).filter((loop) =>
    !between.has(loop) && loop.src[0]!.op === "CONST" && iterations([loop]) <= tileTokens &&
    read.some((open) => !open.has(loop))
  )
  return new Map(rows.map((loop) => [loop, Math.min(tileRows, iterations([loop]))]))
}

const bytesOf = (nodes: ReadonlyArray<UOp>, sizeOf: SizeOf, outside: ReadonlySet<UOp>): number =>
  4 * chain([...trafficOf(nodes, sizeOf, outside).values()])

/** Whether a workgroup computes an END beside the last one as a whole: it has loops of its own. */
const isWhole = ({ end }: Phase, between: ReadonlySet<UOp>): boolean =>
  !isStage(end) && end.src.slice(1).some((loop) => rangeArg(loop).axis === "LOOP" && !between.has(loop))

const readsBuffers = ({ nodes }: Phase): boolean => nodes.some(loadsBuffer)

/** Whether an END has dependent loads: the index of one is loaded by another. */
const readsWhereTold = ({ nodes }: Phase): boolean => {
  const loaded = new Set<UOp>()
  for (const node of nodes) {
    if (loadsBuffer(node) && loaded.has(node.src[0]!)) return true
    if (node.op === "LOAD" || node.src.some((source) => loaded.has(source))) loaded.add(node)
  }
  return false
}

/** Iterations of the longest reduction. */
const longest = ({ nodes }: Phase, iterations: Iterations): number =>
  Math.max(1, ...nodes.filter((n) => n.op === "REDUCE").map((n) => iterations(n.src.slice(1))))

/**
 * Loads under way at a time in a loop that may end behind any iteration: two of each value (docs/decode-h200.md, "Loads under way"), of two values. So
 * the combination of GLM-4.7-Flash's pieces takes as long in the value projection as apart behind some 1300 positions; measured on an H200 are 1500.
 */
const loadsAtOnce = 4

/**
 * Loads of a thread that wait for one another: those of the longest reduction whose size is known at launch alone, as over the pieces of a context. Where
 * a workgroup computes fewer values than it has threads, these share each of them.
 */
const loadsInLine = ({ end, nodes }: Phase, iterations: Iterations, between: ReadonlySet<UOp>): number => {
  const reductions = nodes.filter(({ op }) => op === "REDUCE")
  const sizes = reductions.map(({ src }) => src.slice(1).filter((loop) => loop.src[0]!.op !== "CONST"))
  const longest = Math.max(0, ...sizes.map((loops) => loops.length === 0 ? 0 : iterations(loops)))
  const values = iterations(end.src.slice(1), between)
  return longest / loadsAtOnce / Math.max(1, workgroupThreads / values)
}

/**
 * The cost model of a GPU: a launch, then waves of workgroups, each of which first fills its workgroup memory and then does its
 * share of the rest.
 */
export const ofProfile = (profile: DeviceProfile): FusionCost | undefined => {
  if (profile.kind !== "gpu") return undefined
  const known = quantitiesOf(profile)
  const processors = Math.max(1, known.processors)
  const residentWorkgroups = Math.max(1, known.residentThreads / workgroupThreads)
  const rate = profile.bytesPerMicro / processors
  // a turn of loads in line: of what all processors wrote just now and read at once, it takes longer than a load that hits, and hardly as long as one from
  // memory; 0.48 us on an H200, where a stage takes 0.4
  const turn = Math.max(known.cachedLoadMicros, Math.min(known.loadMicros, known.stageMicros))
  const micros = ({ bytes, operations }: { readonly operations: number; readonly bytes: number }): number =>
    Math.max(operations / known.operationsPerByte, bytes / known.cachedPerByte) / rate
  return {
    key: digest(`@tg/rangeify ${JSON.stringify(Object.entries(profile).sort())}`),
    maxWorkgroupBytes: profile.maxWorkgroupBytes / 2,
    kernelMicros: (kernel, sizeOf = usualSize, isAsked = false) => {
      const iterations = iterationsBy(sizeOf)
      const phases = kernel.src.map((end): Phase => ({ end, nodes: toposort(end) }))
      // an END that stores some columns of the result beside the last one waits for nothing of its own
      const stages = phases.slice(0, -1).filter(({ end }) => isStage(end))
      const main = phases.at(-1)!
      const outputs = new Set(main.end.src.slice(1).filter((r) => rangeArg(r).axis === "GLOBAL"))
      const between = loopsBetween(kernel)
      const isTogether = isAsked || stages.length > 0 && phases.slice(0, -1).some((phase) => isWhole(phase, between))
      const apart = iterations(between)
      const inside = iterations([...outputs].filter((r) => !between.has(r)))
      const rows = Math.min(mostRows, Math.max(leastRows, apart * inside / (2 * processors)))
      const tiled = stages.length === 0
        ? tiledLoops(main, iterations, profile)
        : (isTogether ? tiledProduct(main, iterations, profile) : undefined) ?? untiled
      const units = isTogether ? productsIn(main, profile) : noUnits
      const most = longest(main, iterations) >= longReduction ? rows : outputsPerWorkgroup
      // each workgroup computes all rows of what it stages
      const shared = isTogether ? Math.max(most, inside) : most
      const workgroups = apart * Math.ceil(inside / shared)
      const waves = Math.ceil(workgroups / (residentWorkgroups * processors))
      const told = phases.slice(1).filter(readsWhereTold).length
      const later = Math.max(0, phases.filter(readsBuffers).length - 1)
      // each addition to memory waits for the one before
      const added = iterations(main.end.src.slice(1).filter((r) => rangeArg(r).axis === "REDUCE")) - 1
      const loads = told * known.loadMicros + Math.max(0, later - told) * known.cachedLoadMicros
      // bound by the latency of one workgroup, or by the throughput of all: each of them loads what it stages
      const repeats = workgroups / apart
      const staged = stages.reduce((sum, stage) => {
        const bytes = bytesOf(stage.nodes, sizeOf, between)
        // what a processor's own cache holds is loaded once by each processor
        const times = bytes > known.ownCacheBytes ? workgroups : Math.min(workgroups, processors)
        const loads = times * micros({ operations: 0, bytes })
        const tiled = !isTogether
          ? untiled
          : tiledProduct(stage, iterations, profile) ?? tiledRows(stage, between, iterations)
        const units = isTogether ? productsIn(stage, profile) : noUnits
        const all = Math.max(
          repeats * micros(workOf(stage, { iterations, outside: none, around: between, tiled, units })),
          loads
        )
        const inLine = loadsInLine(stage, iterations, between) * turn
        const own = micros(workOf(stage, { iterations, outside: between, tiled, units }))
        return sum + Math.max(own, all / processors, inLine)
      }, 0)
      return {
        wait: profile.dispatchMicros + known.loadMicros + added * known.cachedLoadMicros +
          (1 + overlap * (waves - 1)) * (stages.length * known.stageMicros + loads),
        work: staged + micros(workOf(main, { iterations, outside: none, tiled, units })) / processors,
        transfer: bytesOf(phases.length === 1 ? main.nodes : toposort(kernel), sizeOf, none) / profile.bytesPerMicro,
        waves: Math.max(1, workgroups / (residentWorkgroups * processors))
      }
    }
  }
}

/**
 * What latency hiding leaves of a kernel: of several waves of workgroups one computes while the next one loads, so the shorter of
 * both shows once, for the first wave.
 */
const unhidden = ({ transfer = 0, waves = 1, work }: KernelMicros): number =>
  Math.min(transfer, work) / Math.max(1, waves)

/**
 * Microseconds of a launch of these kernels side by side. They wait for their first loads together, and each hides only its own latency:
 * joining adds no waves to a member. In a launch of one wave one computes while another one loads; of several waves, which run in the order
 * of the grid, those of one member run before those of the next, so only one wave's share of that is hidden (the shared experts of 8
 * tokens of GLM-4.7-Flash, computed for each token beside the chosen ones, took an H200 25 us longer than apart).
 */
export const launchOf = (kernels: ReadonlyArray<KernelMicros>): number => {
  const wait = Math.max(0, ...kernels.map((kernel) => kernel.wait))
  const work = chain(kernels.map((kernel) => kernel.work))
  const transfer = chain(kernels.map((kernel) => kernel.transfer ?? 0))
  const together = Math.max(transfer, work)
  const apart = chain(kernels.map((kernel) => Math.max(kernel.transfer ?? 0, kernel.work)))
  const waves = chain(kernels.map(({ waves = 1 }) => Math.max(0, waves - 1))) + 1
  return wait + apart - (apart - together) / waves + chain(kernels.map(unhidden))
}

/** Costs are sums of dozens of numbers: smaller differences are rounding errors. */
export const grain = 1e-6

/**
 * The relative error of the model: predicted gains of up to 2% did not show when they were measured on an H200.
 */
export const margin = 0.02

/** Microseconds that a kernel adds to a launch of others. */
export const addedMicros = (members: ReadonlyArray<KernelMicros>, kernel: KernelMicros): number =>
  launchOf([...members, kernel]) - launchOf(members)

/** A kernel (spec `kernel`) of a launch as it will run. */
export interface Launched {
  readonly ast: UOp
  /** For the values of its variables. */
  readonly sizeOf: SizeOf
  /** That it moves alone, for the values of its variables. */
  readonly bytes: number
  /** Of all its workgroups, by its opts. */
  readonly threads: number
}

/**
 * The predicted time of a launch of these kernels: placement's model, with the loops and the traffic of the whole launch, each byte
 * counted once, and the threads of each kernel.
 */
export const launchMicros = (
  costs: FusionCost,
  profile: DeviceProfile,
  kernels: ReadonlyArray<Launched>,
  bytes: number
): number => {
  const all = chain(kernels.map((kernel) => kernel.bytes))
  return launchOf(kernels.map((kernel) => ({
    ...costs.kernelMicros(kernel.ast, kernel.sizeOf),
    transfer: all === 0 ? 0 : (kernel.bytes / all) * bytes / profile.bytesPerMicro,
    waves: wavesOf(profile, kernel.threads)
  })))
}

/** How often so many threads fill a device. */
export const wavesOf = (profile: DeviceProfile, threads: number): number => {
  const { processors, residentThreads } = quantitiesOf(profile)
  return threads / (residentThreads * Math.max(1, processors))
}

/**
 * The costs by which programs are scheduled for a device; `undefined` stages nothing. A pipeline asks it once,
 * when it is made: provide another to try other placements.
 */
export const FusionCosts = Context.Reference<(profile: DeviceProfile) => FusionCost | undefined>(
  "@tg/rangeify/FusionCosts",
  { defaultValue: () => ofProfile }
)
