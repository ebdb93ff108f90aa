/** What each launch of a schedule costs. */
import * as Custom from "@tg/core-uop/Custom"
import * as Phases from "@tg/core-uop/Phases"
import { evaluateIndex } from "@tg/core-uop/Program"
import { argOf, key, type UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Fusion from "@tg/rangeify/Fusion"
import { members } from "@tg/rangeify/Members"
import type { KernelStep, Schedule, Step } from "@tg/rangeify/Schedule"
import { Effect } from "effect"
import type { LaunchEstimate } from "./Estimate.ts"
import * as PhaseMicros from "./internal/phaseMicros.ts"
import type * as Pipeline from "./Pipeline.ts"
import { bytesOf, bytesOfKernel, kernelsOf, type Vars } from "./StepTraffic.ts"

type Shape = Omit<LaunchEstimate, "step">

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
  const phases = yield* Effect.forEach(kernelsOf(step.ast), (kernel) => ofKernel(pipeline, step, { kernel, vars }))
  if (!step.ast.is("PERSISTENT")) return phases[0]!
  const launch = Phases.ofVariant(step.ast)
  const arg = argOf(launch, "PERSISTENT")
  const parts = Phases.phasesOf(launch)
  // one barrier fewer than phases, one launch for all of them
  const waits = profile.dispatchMicros + (phases.length - 1) * PhaseMicros.boundaryMicros(profile, arg)
  const crossing = { coherent: Phases.crossing(parts), stagedBytes: arg.stagedBytes }
  const own = phases.map((phase) => {
    const busy = phase.bytes / profile.bytesPerMicro
    return phase.micros - profile.dispatchMicros +
      PhaseMicros.slower(
        profile,
        { ...phase, busy, waits: Math.max(0, phase.micros - busy - profile.dispatchMicros) },
        arg
      )
  })
  const shape: Shape = {
    bytes,
    workgroups: arg.workgroups,
    threads: Math.max(arg.threads, ...phases.map(({ threads }) => threads)),
    micros: own.reduce((a, b) => a + b, waits) + PhaseMicros.crossings(profile, parts, crossing) -
      PhaseMicros.savedAhead(profile, arg)
  }
  return shape
})

/** A kernel as a launch of its own, with the opts that it has in this one. */
const ofKernel = Effect.fnUntraced(function*(
  { apply, choose, limits, profile }: Pipeline.Stages,
  { ast: launch, name }: KernelStep,
  { kernel, vars }: { readonly kernel: UOp; readonly vars: Vars }
) {
  const bytes = bytesOfKernel(kernel, vars)
  const kernels = members(kernel).map(({ ast }) => ast)
  const place = Phases.isPersistent(launch) ? "phase" : "launch"
  const opted = yield* Effect.forEach(
    kernels,
    (ast) => Effect.flatMap(choose(ast, place), (opts) => apply(name, ast, opts))
  )
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
