/** Static cost of a tensor program on a device: launches, memory traffic and time. */
import * as Custom from "@tg/core-uop/Custom"
import { quantitiesOf } from "@tg/core-uop/DeviceProfile"
import * as Phases from "@tg/core-uop/Phases"
import { evaluateIndex } from "@tg/core-uop/Program"
import { key, slotOf, type UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import type { IllegalOpt } from "@tg/postrange/Postrange"
import * as Fusion from "@tg/rangeify/Fusion"
import { members } from "@tg/rangeify/Horizontal"
import * as Memory from "@tg/rangeify/Memory"
import type { RangeifyError } from "@tg/rangeify/Rangeify"
import type { Schedule, Step } from "@tg/rangeify/Schedule"
import { Effect } from "effect"
import * as Persistent from "./Persistent.ts"
import type * as Pipeline from "./Pipeline.ts"

/** Values of the symbolic variables. */
export type Vars = Readonly<Record<string, number>>

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

/** Memory traffic of a kernel (spec `kernel`) in bytes, by the slot of the argument. */
export const traffic = (kernel: UOp, vars: Vars): ReadonlyMap<number, number> => {
  const elements = Fusion.traffic(kernel, (size) => evaluateIndex(size, vars))
  return new Map([...elements].map(([param, count]) => [slotOf(param), 4 * count]))
}

type Shape = Omit<LaunchEstimate, "step">

/** Memory traffic of a step in bytes, each byte counted once. */
export const bytesOf = (step: Step, vars: Vars): number =>
  step.kind === "custom"
    ? evaluateIndex(Custom.of(step.custom).cost.bytes, vars)
    : kernelsOf(step.ast).reduce((sum, kernel) => sum + bytesOfKernel(kernel, vars), 0)

/** The phases of a persistent launch; else the kernel itself. */
const kernelsOf = (ast: UOp): ReadonlyArray<UOp> =>
  Phases.isPersistent(ast) ? Phases.phasesOf(ast).map(({ kernel }) => kernel) : [ast]

const bytesOfKernel = (kernel: UOp, vars: Vars): number =>
  [...traffic(kernel, vars).values()].reduce((a, b) => a + b, 0)

/** The cost of each step with the pipeline's opts; memoised by kernel. */
export const launches = Effect.fnUntraced(function*(pipeline: Pipeline.Stages, schedule: Schedule, vars: Vars) {
  const known = new Map<string, Shape>()
  const found: Array<LaunchEstimate> = []
  for (const step of schedule.steps) {
    const text = key(step.kind === "custom" ? step.custom : step.ast)
    const shape = known.get(text) ?? (yield* shapeOf(pipeline, step, vars))
    known.set(text, shape)
    found.push({ step, ...shape })
  }
  return found
})

const shapeOf = Effect.fnUntraced(function*(pipeline: Pipeline.Stages, step: Step, vars: Vars) {
  const bytes = bytesOf(step, vars)
  const { profile } = pipeline
  if (step.kind === "custom") {
    const { kind } = profile
    const { grid = [], workgroup = [1, 1, 1] } = Custom.sourceFor(Custom.of(step.custom), kind) ?? {}
    const shape: Shape = {
      bytes,
      micros: profile.dispatchMicros + bytes / profile.bytesPerMicro,
      workgroups: kind === "gpu" ? grid.reduce((n, size) => n * evaluateIndex(size, vars), 1) : 1,
      threads: workgroup.reduce((a, b) => a * b, 1)
    }
    return shape
  }
  const phases = yield* Effect.forEach(kernelsOf(step.ast), (kernel) => ofKernel(pipeline, step.name, { kernel, vars }))
  if (!step.ast.is("PERSISTENT")) return phases[0]!
  const { arg } = step.ast
  const parts = Phases.phasesOf(step.ast)
  // one barrier fewer than phases, one launch for all of them
  const waits = profile.dispatchMicros + (phases.length - 1) * quantitiesOf(profile).gridBarrierMicros
  const crossing = { coherent: Phases.crossing(parts), stagedBytes: arg.stagedBytes }
  const own = phases.map((phase) => {
    const busy = phase.bytes / profile.bytesPerMicro
    return phase.micros - profile.dispatchMicros +
      Persistent.slower(
        profile,
        { ...phase, busy, waits: Math.max(0, phase.micros - busy - profile.dispatchMicros) },
        arg
      )
  })
  const shape: Shape = {
    bytes,
    workgroups: arg.workgroups,
    threads: Math.max(arg.threads, ...phases.map(({ threads }) => threads)),
    micros: own.reduce((a, b) => a + b, waits) + Persistent.crossings(profile, parts, crossing) -
      Persistent.savedAhead(profile, arg)
  }
  return shape
})

/** A kernel as a launch of its own. */
const ofKernel = Effect.fnUntraced(function*(
  { apply, choose, limits, profile }: Pipeline.Stages,
  name: string,
  { kernel, vars }: { readonly kernel: UOp; readonly vars: Vars }
) {
  const bytes = bytesOfKernel(kernel, vars)
  const kernels = members(kernel).map(({ ast }) => ast)
  const opted = yield* Effect.forEach(kernels, (ast) => Effect.flatMap(choose(ast), (opts) => apply(name, ast, opts)))
  const iterations = (loops: ReadonlyArray<Loops.Loop>): number =>
    loops.reduce((n, loop) => n * evaluateIndex(loop.node.src[0]!, vars), 1)
  const each = opted.map((kernel) => iterations(Loops.outputs(kernel).filter((loop) => loop.axis === "GLOBAL")))
  const threads = Math.max(...opted.map(Loops.threads))
  // a loop that does not run costs a kernel as much as one that runs once
  const sizeOf = (size: UOp): number => Math.max(1, evaluateIndex(size, vars))
  const launched = kernels.map((ast, i) => ({
    ast,
    sizeOf,
    bytes: bytesOfKernel(ast, vars),
    threads: each[i]! * threads
  }))
  const micros = limits.fusion === undefined
    ? profile.dispatchMicros + bytes / profile.bytesPerMicro
    : Fusion.launchMicros(limits.fusion, profile, launched, bytes)
  const workgroups = each.reduce((a, b) => a + b, 0)
  const shape: Shape = { bytes, micros, workgroups, threads }
  return shape
})
