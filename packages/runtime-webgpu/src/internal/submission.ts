/**
 * What is submitted together: runs of plans, and commands between them. A plan has one place for its variables, so
 * where it runs more often than once, the values of all runs are written with one call, and copied to their place in front of each run.
 * All of it is one command buffer, unless the device would be idle while the host encodes: see `partsOf`.
 */
import { DeviceError, type Span, type Staged, type Vars } from "@tg/runtime/Device"
import type { Effect } from "effect"
import { encode, type Grid, type Launch, type Part, setGrids } from "./launches.ts"
import { error, type Gpu, usage } from "./queue.ts"
import type { CopyOut } from "./reads.ts"
import type { Storage } from "./storage.ts"
import type { Uniforms } from "./uniforms.ts"

/** What a plan is, to those who run it. */
export interface Planned {
  readonly launches: ReadonlyArray<Launch>
  /** Those of the launches, for the run that is encoded. */
  readonly grids: ReadonlyArray<Grid>
  readonly uniforms: Uniforms
  /** Holds the variables, if there are any. */
  readonly buffer: GPUBuffer | undefined
  /** Why it cannot be run at all, if it cannot. */
  readonly unfit: () => DeviceError | undefined
}

/** A run of a plan with these values. */
export class Run implements Staged {
  readonly gpu: Gpu
  readonly plan: Planned
  readonly vars: Vars
  readonly descriptor: GPUComputePassDescriptor | undefined
  constructor(gpu: Gpu, plan: Planned, vars: Vars, descriptor?: GPUComputePassDescriptor) {
    this.gpu = gpu
    this.plan = plan
    this.vars = vars
    this.descriptor = descriptor
  }
}

/** Submits runs and commands in their order, or says why it submitted nothing. */
export type Submit = (work: ReadonlyArray<Run | CopyOut>) => DeviceError | undefined

const firstLaunches = 16
const growth = 1.5

/**
 * The command buffers of a run on an idle device: the first is short, so that the device starts early, and each is longer than the one
 * before by less than a launch takes the device longer than the host (GLM on an H200: 6.3 us of 3.6), so that it never runs dry. A
 * device that is busy needs one alone.
 */
export const partsOf = (launches: number, isIdle: boolean): ReadonlyArray<Part> => {
  if (!isIdle) return [{ from: 0, to: launches }]
  const parts: Array<Part> = []
  let from = 0
  for (let length = firstLaunches; from + growth * length < launches; length = Math.ceil(growth * length)) {
    parts.push({ from, to: from + length })
    from += length
  }
  return [...parts, { from, to: launches }]
}

/** A run that was looked at. */
interface Ready {
  readonly run: Run
  /** Its variables; where the plan runs once, they stay until they are written. */
  readonly words: Int32Array<ArrayBuffer>
  /** Whether another run of its plan is submitted with it, which has other workgroup counts. */
  readonly isRepeated: boolean
  /** Where its variables are among those of all runs, in bytes; not there, if they are written to their place right away. */
  readonly at: number | undefined
}

/** Whether the plan of a run runs more often than once. */
const repeats = (work: ReadonlyArray<Run | CopyOut>, run: Run): boolean =>
  work.some((each) => each !== run && each instanceof Run && each.plan === run.plan)

/** What submits on a device. */
export const make = (gpu: Gpu): Submit => {
  const { device } = gpu
  const { queue } = device
  const most = device.limits.maxComputeWorkgroupsPerDimension
  const { buffer: bufferOf, keep } = values(device)

  /** Looks at all runs before anything is written. */
  const readyOf = (work: ReadonlyArray<Run | CopyOut>): ReadonlyArray<Ready> | DeviceError => {
    const trouble = gpu.trouble()
    if (trouble !== undefined) return trouble
    let total = 0
    const ready: Array<Ready> = []
    for (const run of work) {
      if (!(run instanceof Run)) continue
      const { plan, vars } = run
      const unfit = plan.unfit()
      if (unfit !== undefined) return unfit
      const words = plan.uniforms.words(vars)
      if (words instanceof DeviceError) return words
      const refused = setGrids(plan.grids, vars, most)
      if (refused !== undefined) return refused
      const repeated = repeats(work, run)
      const isShared = plan.buffer !== undefined && repeated
      if (isShared) keep(total, words)
      ready.push({ run, words, isRepeated: repeated, at: isShared ? total : undefined })
      if (isShared) total += words.byteLength
    }
    return ready
  }

  /** Puts the variables of all runs where they are found: of those with a place of their own, the buffer. */
  const write = (ready: ReadonlyArray<Ready>): GPUBuffer | undefined => {
    let shared = 0
    for (const { at, run: { plan: { buffer, uniforms } }, words } of ready) {
      if (at !== undefined) shared = at + uniforms.bytes
      else if (buffer !== undefined) queue.writeBuffer(buffer, 0, words)
    }
    return shared === 0 ? undefined : bufferOf(shared)
  }

  return (work) => {
    const ready = readyOf(work)
    if (ready instanceof DeviceError) return ready
    const source = write(ready)
    let encoder = device.createCommandEncoder()
    let next = 0
    let isIdle = gpu.progress.done === gpu.progress.submitted
    gpu.progress.submitted++
    for (const each of work) {
      if (!(each instanceof Run)) {
        each(encoder)
        continue
      }
      const { at, isRepeated, run: { descriptor, plan, vars } } = ready[next++]!
      if (isRepeated) setGrids(plan.grids, vars, most)
      if (at !== undefined) encoder.copyBufferToBuffer(source!, at, plan.buffer!, 0, plan.uniforms.bytes)
      for (const part of partsOf(plan.launches.length, isIdle && descriptor === undefined)) {
        if (part.from > 0) {
          queue.submit([encoder.finish()])
          encoder = device.createCommandEncoder()
        }
        encode(encoder, plan.launches, part, descriptor)
      }
      isIdle = false
    }
    queue.submit([encoder.finish()])
    return undefined
  }
}

/** Memory for the variables of several runs, on both sides; it grows. */
const values = (device: GPUDevice) => {
  let host = new Int32Array(1024)
  let buffer: GPUBuffer | undefined
  return {
    /** Keeps words for the next submission, at so many bytes. */
    keep: (at: number, own: Int32Array): void => {
      const end = at / 4 + own.length
      if (end > host.length) {
        const longer = new Int32Array(2 * end)
        longer.set(host)
        host = longer
      }
      host.set(own, at / 4)
    },
    /** The buffer that has the first so many bytes of them. */
    buffer: (bytes: number): GPUBuffer => {
      if (buffer === undefined || buffer.size < bytes) {
        buffer?.destroy()
        buffer = device.createBuffer({
          label: "variables of several runs",
          size: 4 * host.length,
          usage: usage.copySrc | usage.copyDst
        })
      }
      device.queue.writeBuffer(buffer, 0, host, 0, bytes / 4)
      return buffer
    }
  }
}

/** Submits runs and reads, and answers with what was read. */
export const withReads =
  (gpu: Gpu, storage: Storage, submit: Submit) =>
  (work: ReadonlyArray<Staged | Span>): Effect.Effect<ReadonlyArray<Uint8Array>, DeviceError> =>
    storage.readWith(work.filter((each) => "buffer" in each), (copies) => {
      let next = 0
      const commands: Array<Run | CopyOut> = []
      for (const each of work) {
        if ("buffer" in each) commands.push(copies[next++]!)
        else if (each instanceof Run && each.gpu === gpu) commands.push(each)
        else return error("BadArgument", "a run was staged on another device; stage it where it is submitted")
      }
      return submit(commands)
    })
