import * as Bounds from "@tg/core-uop/Bounds"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { elementwise } from "@tg/core-uop/Op"
import { openRanges, rangeArg, toposort, type UOp } from "@tg/core-uop/UOp"
import { transcendental } from "./Placement.ts"

/** What a kernel of a schedule costs, in microseconds on one device. Compared, never added to measurements. */
export interface FusionCost {
  /** Tells schedules of different costs apart. */
  readonly name: string
  /** Workgroup memory that staged values may take, in bytes. */
  readonly maxWorkgroupBytes: number
  /** A kernel (spec `kernel`): its launch, what each workgroup stages, and its own work. */
  readonly kernelMicros: (kernel: UOp) => number
}

/** What a loop of unknown length is taken to run: positions of a short context in pieces, or tokens. */
const symbolicIterations = 64
/** Threads of one processor, by which `saturatingThreads` counts processors. */
const threadsPerProcessor = 1024
/** Operations of one processor per microsecond: 128 lanes at 1.7 GHz. */
const operationsPerMicro = 128 * 1700
/** Bytes one processor gets from the caches per microsecond. */
const cacheBytesPerMicro = 64 * 1700
/** Workgroups of 256 threads that one processor runs at a time, each hiding the latency of others. */
const residentWorkgroups = 8
/** Waiting for the first load and the barrier behind a stage. */
const stageLatency = 0.4

const transcendentalOperations = 8

const none: ReadonlySet<UOp> = new Set()

const iterations = (ranges: Iterable<UOp>): number => {
  let n = 1
  for (const range of ranges) {
    const size = range.src[0]!
    n *= size.op === "CONST" ? Number(size.arg) : Math.min(symbolicIterations, Bounds.of(size).max)
  }
  return n
}

/** Operations and loaded bytes of one END, for one iteration of the loops in `outside`. */
const workOf = (end: UOp, outside: ReadonlySet<UOp>): { readonly operations: number; readonly bytes: number } => {
  let operations = 0
  let bytes = 0
  for (const node of toposort(end)) {
    const isLoad = node.op === "LOAD" && node.src[0]!.src[0]!.op === "PARAM"
    if (!isLoad && (!elementwise.has(node.op) || node.dtype === DType.index)) continue
    const times = iterations([...openRanges(node)].filter((r) => !outside.has(r)))
    if (isLoad) bytes += 4 * times
    else operations += times * (transcendental.has(node.op) ? transcendentalOperations : 1)
  }
  return { operations, bytes }
}

/**
 * The cost model of a GPU: a launch, then waves of workgroups, each of which first stages what it keeps in its memory and
 * then does its share of the rest. The share is as large as it can be while the device is full.
 */
export const ofProfile = (profile: DeviceProfile): FusionCost | undefined => {
  if (profile.kind !== "gpu") return undefined
  const processors = Math.max(1, profile.saturatingThreads / threadsPerProcessor)
  const full = 2 * processors
  const micros = ({ bytes, operations }: { readonly operations: number; readonly bytes: number }): number =>
    Math.max(operations / operationsPerMicro, bytes / cacheBytesPerMicro)
  return {
    name: profile.name,
    maxWorkgroupBytes: profile.maxWorkgroupBytes / 2,
    kernelMicros: (kernel) => {
      const stages = kernel.src.slice(0, -1)
      const main = kernel.src[kernel.src.length - 1]!
      const outputs = new Set(main.src.slice(1).filter((r) => rangeArg(r).axis === "GLOBAL"))
      const between = new Set(
        toposort(kernel).filter((n) => n.op === "LOCAL").flatMap((memory) => [...openRanges(memory)])
      )
      const apart = iterations(between)
      const inside = iterations([...outputs].filter((r) => !between.has(r)))
      const workgroups = stages.length === 0 ? full : apart * Math.min(inside, Math.max(1, Math.round(full / apart)))
      const latency = stageLatency * stages.length * Math.ceil(workgroups / (residentWorkgroups * processors))
      // one workgroup alone takes its time; all of them share the processors
      const repeats = workgroups / apart
      const staged = stages.reduce(
        (sum, end) => sum + Math.max(micros(workOf(end, between)), repeats * micros(workOf(end, none)) / processors),
        0
      )
      return profile.dispatchMicros + latency + staged + micros(workOf(main, none)) / processors
    }
  }
}
