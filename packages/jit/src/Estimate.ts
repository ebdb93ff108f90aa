/** What a tensor program will cost on a device: launches, bytes and time, from its kernels alone. */
import * as Bounds from "@tg/core-uop/Bounds"
import * as Custom from "@tg/core-uop/Custom"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { evaluateIndex } from "@tg/core-uop/Program"
import { key, openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import { choose as usual } from "@tg/heuristics/Heuristics"
import * as Loops from "@tg/postrange/Loops"
import type * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"
import { members } from "@tg/rangeify/Horizontal"
import * as Memory from "@tg/rangeify/Memory"
import { limitsOf, RangeifyError, schedule } from "@tg/rangeify/Rangeify"
import type { Schedule, Step } from "@tg/rangeify/Schedule"
import { Result } from "effect"

/** Values of the symbolic variables. */
export type Vars = Readonly<Record<string, number>>

/** One launch of a schedule. */
export interface LaunchEstimate {
  readonly step: Step
  /** Bytes moved between memory and the device, each byte counted once. */
  readonly bytes: number
  readonly micros: number
  readonly workgroups: number
  /** Threads of a workgroup. */
  readonly threads: number
}

/** A program as `Jit.prepare` would run it. */
export interface Estimate {
  /** Its launches in their order, for these values of the variables. */
  readonly launches: (vars: Vars) => ReadonlyArray<LaunchEstimate>
  /** Bytes of each block of temporary memory. */
  readonly blocks: ReadonlyArray<number>
}

/** Gives a kernel its opts. */
export type Choose = (kernel: UOp) => ReadonlyArray<Opt.Opt>

/** Schedules a program and plans its memory, with the heuristics' opts if no others are given. */
export const estimate = (
  sink: UOp,
  profile: DeviceProfile,
  choose: Choose = (kernel) => usual(kernel, profile)
): Result.Result<Estimate, RangeifyError> => {
  const steps = schedule(sink, limitsOf(profile))
  return steps instanceof RangeifyError
    ? Result.fail(steps)
    : Result.succeed({
      launches: (vars) => launches(steps, { profile, vars, choose }),
      blocks: Memory.planMemory(steps).blocks
    })
}

/** Bytes that a kernel (spec `kernel`) reads and writes, by the slot of the argument. */
export const traffic = (kernel: UOp, vars: Vars): ReadonlyMap<number, number> => {
  const indices = new Map<UOp, Set<UOp>>()
  for (const node of toposort(kernel)) {
    if (node.op !== "INDEX" || node.src[0]!.op === "LOCAL") continue
    const [param, index] = node.src
    const known = indices.get(param!)
    if (known === undefined) indices.set(param!, new Set([index!]))
    else known.add(index!)
  }
  return new Map([...indices].map(([param, found]) => {
    const elements = [...found].reduce((sum, index) => sum + places(index, vars), 0)
    const bytes = 4 * Math.min(elements, evaluateIndex(param.src[0]!, vars))
    return [(param.arg as { readonly slot: number }).slot, bytes]
  }))
}

/** How many values an index takes: one per iteration of its loops, but no more than its bounds hold. */
const places = (index: UOp, vars: Vars): number => {
  const { max, min } = Bounds.of(index)
  const iterations = [...openRanges(index)].reduce((n, range) => n * evaluateIndex(range.src[0]!, vars), 1)
  return Math.min(iterations, max - min + 1)
}

interface Shape {
  readonly bytes: number
  readonly workgroups: number
  readonly threads: number
}

/** The situation of a launch. */
interface Situation {
  readonly profile: DeviceProfile
  readonly vars: Vars
  readonly choose?: Choose | undefined
}

/** What each step takes. Equal kernels are looked at once. */
export const launches = (
  schedule: Schedule,
  { profile, vars, choose = (kernel) => usual(kernel, profile) }: Situation
): ReadonlyArray<LaunchEstimate> => {
  const known = new Map<string, Shape>()
  const shapeOf = (step: Step): Shape => {
    if (step.kind === "custom") return writtenShape(Custom.of(step.custom), profile.kind, vars)
    const text = key(step.ast)
    const found = known.get(text)
    if (found !== undefined) return found
    const bytes = [...traffic(step.ast, vars).values()].reduce((a, b) => a + b, 0)
    const shapes = members(step.ast).map(({ ast }) => launchShape(step.name, ast, { profile, vars, choose }))
    const made = {
      bytes,
      workgroups: shapes.reduce((n, shape) => n + shape.workgroups, 0),
      threads: Math.max(...shapes.map((shape) => shape.threads))
    }
    known.set(text, made)
    return made
  }
  return schedule.steps.map((step) => {
    const shape = shapeOf(step)
    return { step, ...shape, micros: profile.dispatchMicros + shape.bytes / profile.bytesPerMicro }
  })
}

/** What a kernel written by hand says about its launch. */
const writtenShape = (custom: Custom.Custom, kind: DeviceProfile["kind"], vars: Vars): Shape => {
  const { grid = [], workgroup = [1, 1, 1] } = Custom.sourceFor(custom, kind) ?? {}
  return {
    bytes: evaluateIndex(custom.cost.bytes, vars),
    workgroups: kind === "gpu" ? grid.reduce((n, size) => n * evaluateIndex(size, vars), 1) : 1,
    threads: workgroup.reduce((a, b) => a * b, 1)
  }
}

/** The launch that the opts lead to. */
const launchShape = (
  name: string,
  kernel: UOp,
  { choose, profile, vars }: Situation & { readonly choose: Choose }
): { readonly workgroups: number; readonly threads: number } => {
  const opted = Postrange.apply(name, kernel, choose(kernel), profile)
  if (opted instanceof Postrange.IllegalOpt) throw opted
  const iterations = (loops: ReadonlyArray<Loops.Loop>): number =>
    loops.reduce((n, loop) => n * evaluateIndex(loop.node.src[0]!, vars), 1)
  return {
    workgroups: iterations(Loops.outputs(opted).filter((loop) => loop.axis === "GLOBAL")),
    threads: Loops.threads(opted)
  }
}
