/** What a tensor program will cost on a device: launches, bytes and time, from its kernels alone. */
import * as Custom from "@tg/core-uop/Custom"
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
import type * as Pipeline from "./Pipeline.ts"

/** Values of the symbolic variables. */
export type Vars = Readonly<Record<string, number>>

/** One launch of a schedule. */
export interface LaunchEstimate {
  readonly step: Step
  /** Bytes moved between memory and the device, each byte counted once. */
  readonly bytes: number
  /** By the costs of the pipeline (`Fusion.launchMicros`); without them, a launch and the bytes at the speed of memory. */
  readonly micros: number
  readonly workgroups: number
  /** Threads of a workgroup. */
  readonly threads: number
}

/** A program as `Jit.prepare` would run it. */
export interface Estimate {
  /** Its launches in their order, for these values of the variables. */
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

/** Bytes that a kernel (spec `kernel`) reads and writes, by the slot of the argument. */
export const traffic = (kernel: UOp, vars: Vars): ReadonlyMap<number, number> => {
  const elements = Fusion.traffic(kernel, (size) => evaluateIndex(size, vars))
  return new Map([...elements].map(([param, count]) => [slotOf(param), 4 * count]))
}

type Shape = Omit<LaunchEstimate, "step">

/** Bytes that a step moves between memory and the device, each byte counted once. */
export const bytesOf = (step: Step, vars: Vars): number =>
  step.kind === "custom"
    ? evaluateIndex(Custom.of(step.custom).cost.bytes, vars)
    : bytesOfKernel(step.ast, vars)

const bytesOfKernel = (kernel: UOp, vars: Vars): number =>
  [...traffic(kernel, vars).values()].reduce((a, b) => a + b, 0)

/** What each step takes, with the opts of the pipeline. Equal kernels are looked at once. */
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
  const { limits, profile } = pipeline
  const roofline = profile.dispatchMicros + bytes / profile.bytesPerMicro
  if (step.kind === "custom") {
    const { kind } = profile
    const { grid = [], workgroup = [1, 1, 1] } = Custom.sourceFor(Custom.of(step.custom), kind) ?? {}
    const shape: Shape = {
      bytes,
      micros: roofline,
      workgroups: kind === "gpu" ? grid.reduce((n, size) => n * evaluateIndex(size, vars), 1) : 1,
      threads: workgroup.reduce((a, b) => a * b, 1)
    }
    return shape
  }
  const kernels = members(step.ast).map(({ ast }) => ast)
  const opted = yield* Effect.forEach(
    kernels,
    (ast) => Effect.flatMap(pipeline.choose(ast), (opts) => pipeline.apply(step.name, ast, opts))
  )
  const iterations = (loops: ReadonlyArray<Loops.Loop>): number =>
    loops.reduce((n, loop) => n * evaluateIndex(loop.node.src[0]!, vars), 1)
  const each = opted.map((kernel) => iterations(Loops.outputs(kernel).filter((loop) => loop.axis === "GLOBAL")))
  const threads = Math.max(...opted.map(Loops.threads))
  const launched = kernels.map((ast, i) => ({ ast, bytes: bytesOfKernel(ast, vars), threads: each[i]! * threads }))
  const micros = limits.fusion === undefined
    ? roofline
    : Fusion.launchMicros(limits.fusion, profile, launched, bytes)
  const workgroups = each.reduce((a, b) => a + b, 0)
  const shape: Shape = { bytes, micros, workgroups, threads }
  return shape
})
