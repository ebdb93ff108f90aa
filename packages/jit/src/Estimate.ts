/** Static cost of a tensor program on a device: launches, memory traffic and time. */
import type { UOp } from "@tg/core-uop/UOp"
import type { IllegalOpt } from "@tg/postrange/Postrange"
import * as Memory from "@tg/rangeify/Memory"
import type { RangeifyError } from "@tg/rangeify/Rangeify"
import type { Step } from "@tg/rangeify/Schedule"
import { Effect } from "effect"
import { launches } from "./Launches.ts"
import type * as Pipeline from "./Pipeline.ts"
import type { Vars } from "./StepTraffic.ts"

export { launches } from "./Launches.ts"
export { bytesOf, traffic, type Vars } from "./StepTraffic.ts"

/** One launch of a schedule. */
export interface LaunchEstimate {
  readonly step: Step
  /** Bytes moved between memory and the device, each byte counted once. */
  readonly bytes: number
  /** By the pipeline's cost model (`Fusion.launchMicros`); without one, launch overhead and traffic at the profile's bandwidth. */
  readonly micros: number
  readonly workgroups: number
  /** Threads of a workgroup. */
  readonly threads: number
}

/** A program as `Jit.prepare` would run it. */
export interface Estimate {
  /** Its launches in order, for these values of the variables. */
  readonly launches: (vars: Vars) => Effect.Effect<ReadonlyArray<LaunchEstimate>, IllegalOpt>
  /** Bytes of each block of temporary memory. */
  readonly blocks: ReadonlyArray<number>
}

/** Schedules a program as the pipeline does, and plans its memory. */
export const estimate = (pipeline: Pipeline.Stages, sink: UOp): Effect.Effect<Estimate, RangeifyError> =>
  Effect.map(pipeline.schedule(sink), (schedule) => ({
    launches: (vars) => launches(pipeline, schedule, vars),
    blocks: Memory.planMemory(schedule).blocks
  }))
