import * as Bounds from "@tg/core-uop/Bounds"
import { type DeviceProfile, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { elementwise } from "@tg/core-uop/Op"
import { digest, openRanges, rangeArg, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { loopsBetween } from "@tg/core-uop/Workgroup"
import { Context } from "effect"
import { chain } from "./Cost.ts"
import { transcendental } from "./Values.ts"

/** What a kernel of a schedule costs, in microseconds on one device. Compared, never added to measurements. */
export interface FusionCost {
  /** For cache keys: equal for costs that are equal for every kernel. */
  readonly key: string
  /** Workgroup memory that staged values may take, in bytes. */
  readonly maxWorkgroupBytes: number
  readonly kernelMicros: (kernel: UOp) => KernelMicros
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

/**
 * The assumed trip count of a loop of symbolic size, over tokens or pieces of a context: a quarter of the bound, as a context is
 * seldom full, within these limits.
 */
const usualPart = 4
const fewestIterations = 16
const mostIterations = 64
const usualIterations = (most: number): number =>
  Math.min(most, mostIterations, Math.max(fewestIterations, Math.floor(most / usualPart)))
/** Threads of the workgroups that are counted. A processor's occupancy is as many of them as it holds threads. */
const workgroupThreads = 256
/** The part of a wave's latency that is not hidden by other workgroups. */
const overlap = 0.25

const transcendentalOperations = 8

/** Reuse of a loaded value, in registers or in the cache of neighbouring threads: so many outputs share one load. */
const together = 4

const none: ReadonlySet<UOp> = new Set()

const loadsBuffer = (node: UOp): boolean => node.op === "LOAD" && accessOf(node).buffer.op === "PARAM"

/** What a loop of this size is taken to run. */
export const usualSize = (size: UOp): number =>
  size.op === "CONST" ? Number(size.arg) : usualIterations(Bounds.of(size).max)

const iterations = (ranges: Iterable<UOp>): number => {
  let n = 1
  for (const range of ranges) {
    n *= usualSize(range.src[0]!)
  }
  return n
}

/** An END of a kernel, and its nodes, sources first. */
interface Phase {
  readonly end: UOp
  readonly nodes: ReadonlyArray<UOp>
}

/**
 * Operations and loaded bytes of one END, for one iteration of the loops in `outside`. Values that are invariant in one of the END's
 * loops are computed again in each iteration (its threads share nothing); loads are shared by `together` of them.
 */
const workOf = (
  { end, nodes }: Phase,
  outside: ReadonlySet<UOp>
): { readonly operations: number; readonly bytes: number } => {
  let operations = 0
  let bytes = 0
  const own = end.src.slice(1).filter((r) => !outside.has(r))
  for (const node of nodes) {
    const isLoad = loadsBuffer(node)
    if (!isLoad && (!elementwise.has(node.op) || node.dtype === DType.index)) continue
    const open = openRanges(node)
    const repeats = iterations(own.filter((r) => !open.has(r)))
    const once = iterations([...open].filter((r) => !outside.has(r)))
    if (isLoad) bytes += 4 * once * Math.max(1, repeats / together)
    else operations += once * repeats * (transcendental.has(node.op) ? transcendentalOperations : 1)
  }
  return { operations, bytes }
}

/**
 * Elements that a kernel (spec `kernel`) reads and writes of each PARAM, each counted once: one for each iteration of the loops
 * that its index depends on, but no more than the index or the buffer has. Loops `outside` have one iteration.
 */
export const traffic = (
  kernel: UOp,
  sizeOf: (size: UOp) => number,
  outside: ReadonlySet<UOp> = none
): ReadonlyMap<UOp, number> => {
  const indices = new Map<UOp, Set<UOp>>()
  for (const node of toposort(kernel)) {
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

const bytesOf = (kernel: UOp, outside: ReadonlySet<UOp>): number =>
  4 * chain([...traffic(kernel, usualSize, outside).values()])

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
const longest = ({ nodes }: Phase): number =>
  Math.max(1, ...nodes.filter((n) => n.op === "REDUCE").map((n) => iterations(n.src.slice(1))))

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
  const micros = ({ bytes, operations }: { readonly operations: number; readonly bytes: number }): number =>
    Math.max(operations / known.operationsPerByte, bytes / known.cachedPerByte) / rate
  return {
    key: digest(`@tg/rangeify ${JSON.stringify(Object.entries(profile).sort())}`),
    maxWorkgroupBytes: profile.maxWorkgroupBytes / 2,
    kernelMicros: (kernel) => {
      const phases = kernel.src.map((end): Phase => ({ end, nodes: toposort(end) }))
      const stages = phases.slice(0, -1)
      const main = phases.at(-1)!
      const outputs = new Set(main.end.src.slice(1).filter((r) => rangeArg(r).axis === "GLOBAL"))
      const between = loopsBetween(kernel)
      const apart = iterations(between)
      const inside = iterations([...outputs].filter((r) => !between.has(r)))
      const rows = Math.min(mostRows, Math.max(leastRows, apart * inside / (2 * processors)))
      const shared = longest(main) >= longReduction ? rows : outputsPerWorkgroup
      const workgroups = apart * Math.ceil(inside / shared)
      const waves = Math.ceil(workgroups / (residentWorkgroups * processors))
      const told = phases.slice(1).filter(readsWhereTold).length
      const later = Math.max(0, phases.filter(readsBuffers).length - 1)
      const loads = told * known.loadMicros + Math.max(0, later - told) * known.cachedLoadMicros
      // bound by the latency of one workgroup, or by the throughput of all: each of them loads what it stages
      const repeats = workgroups / apart
      const staged = stages.reduce((sum, stage) => {
        const bytes = bytesOf(stage.end, between)
        // what fits beside a processor's workgroup memory is loaded once by each processor
        const times = bytes > known.residentBytes ? workgroups : Math.min(workgroups, processors)
        const loads = times * micros({ operations: 0, bytes })
        const all = Math.max(repeats * micros(workOf(stage, none)), loads)
        return sum + Math.max(micros(workOf(stage, between)), all / processors)
      }, 0)
      return {
        wait: profile.dispatchMicros + known.loadMicros +
          (1 + overlap * (waves - 1)) * (stages.length * known.stageMicros + loads),
        work: staged + micros(workOf(main, none)) / processors,
        transfer: bytesOf(kernel, none) / profile.bytesPerMicro,
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
 * Microseconds of a launch of these kernels side by side. They wait for their first loads together, share memory and
 * processors, and each hides only its own latency: joining adds no waves to a member.
 */
export const launchOf = (kernels: ReadonlyArray<KernelMicros>): number => {
  const wait = Math.max(0, ...kernels.map((kernel) => kernel.wait))
  const work = chain(kernels.map((kernel) => kernel.work))
  const transfer = chain(kernels.map((kernel) => kernel.transfer ?? 0))
  return wait + Math.max(transfer, work) + chain(kernels.map(unhidden))
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
  /** That it moves alone, for the values of its variables. */
  readonly bytes: number
  /** Of all its workgroups, by its opts. */
  readonly threads: number
}

/**
 * The predicted time of a launch of these kernels: placement's model, with the traffic of the whole launch, each byte counted once,
 * and the threads of each kernel.
 */
export const launchMicros = (
  costs: FusionCost,
  profile: DeviceProfile,
  kernels: ReadonlyArray<Launched>,
  bytes: number
): number => {
  const { processors, residentThreads } = quantitiesOf(profile)
  const all = chain(kernels.map((kernel) => kernel.bytes))
  return launchOf(kernels.map((kernel) => ({
    ...costs.kernelMicros(kernel.ast),
    transfer: all === 0 ? 0 : (kernel.bytes / all) * bytes / profile.bytesPerMicro,
    waves: kernel.threads / (residentThreads * Math.max(1, processors))
  })))
}

/**
 * The costs by which programs are scheduled for a device; `undefined` stages nothing. A pipeline asks it once,
 * when it is made: provide another to try other placements.
 */
export const FusionCosts = Context.Reference<(profile: DeviceProfile) => FusionCost | undefined>(
  "@tg/rangeify/FusionCosts",
  { defaultValue: () => ofProfile }
)
