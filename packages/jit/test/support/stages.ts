import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import * as EvaluateTensor from "@tg/core-uop/EvaluateTensor"
import { elementwise } from "@tg/core-uop/Op"
import type { RendererCaps } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import { concatenate } from "@tg/devectorize/Concatenate"
import { devectorize, DevectorizeError } from "@tg/devectorize/Devectorize"
import { linearize } from "@tg/devectorize/Linearize"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"
import type { FusionCost } from "@tg/rangeify/Fusion"
import { members, type Part } from "@tg/rangeify/Horizontal"
import * as Memory from "@tg/rangeify/Memory"
import * as Rangeify from "@tg/rangeify/Rangeify"
import type { KernelStep, Ref, Schedule } from "@tg/rangeify/Schedule"
import type { RandomProgram } from "@tg/tensor/Random"

export type Data = Float32Array | Int32Array | Uint32Array
/** The buffers of a program by id. */
export type Contents = Map<number, Data>

const fresh = (scalar: string, length: number): Data =>
  scalar === "f32" ? new Float32Array(length) : scalar === "i32" ? new Int32Array(length) : new Uint32Array(length)

/** The program's buffers before it runs: inputs filled, outputs zero. */
export const initial = (random: RandomProgram): Contents => {
  const contents: Contents = new Map()
  const elements = (capacity: ReadonlyArray<number>): number => capacity.reduce((n, d) => n * d, 1)
  for (const o of random.outputs) contents.set(o.id, fresh(o.dtype.scalar, Math.max(1, elements(o.capacity))))
  for (const i of random.inputs) contents.set(i.id, i.data.slice())
  return contents
}

/** Runs the tensor graph itself: the truth the other stages are compared with. */
export const runTensor = (random: RandomProgram): Contents => {
  const contents = initial(random)
  const buffers = new Map<UOp, Data>()
  for (const node of toposort(random.program.sink)) {
    if (node.op === "BUFFER") buffers.set(node, contents.get((node.arg as { readonly id: number }).id)!)
  }
  EvaluateTensor.evaluate([random.program.sink], { buffers, vars: random.vars })
  return contents
}

const checked = (stage: Spec.Stage, root: UOp): UOp => {
  const [violation] = Spec.check(stage, root)
  if (violation !== undefined) throw new Error(`spec ${stage}: ${violation.node}: ${violation.reason}`)
  return root
}

/** Executes one kernel on host memory, by slot. */
export type Execute = (step: KernelStep, args: ReadonlyArray<Data>, vars: Readonly<Record<string, number>>) => void

/** The schedule of a program, with its input checked. */
export const scheduled = (random: RandomProgram, limits: Partial<Rangeify.Limits> = {}): Schedule => {
  const result = Rangeify.schedule(checked("tensor", random.program.sink), { maxStorageBuffers: 8, ...limits })
  if (result instanceof Rangeify.RangeifyError) throw result
  return result
}

/** Every kernel costs the same, so whatever may be staged in workgroup memory is. */
export const stageAll: FusionCost = {
  key: "stage all",
  maxWorkgroupBytes: 8192,
  kernelMicros: () => ({ wait: 0, work: 1 })
}

/** Runs a schedule, kernel by kernel, in the memory that the plan gives it. */
export const runSchedule = (random: RandomProgram, schedule: Schedule, execute: Execute): Contents => {
  const contents = initial(random)
  const memory = Memory.planMemory(schedule)
  const blocks = memory.blocks.map((bytes) => new Uint32Array(bytes / 4).fill(0x7fc00001))
  const resolve = (ref: Ref): Data => {
    const data = memoryOf(ref)
    return ref.window === undefined
      ? data
      : data.subarray(ref.window.offset / 4, (ref.window.offset + ref.window.bytes) / 4)
  }
  const memoryOf = (ref: Ref): Data =>
    ref.kind === "buffer"
      ? contents.get((ref.node.arg as { readonly id: number }).id)!
      : ref.kind === "temporary"
      ? blocks[memory.blockOf[ref.id]!]!
      : (() => {
        throw new Error("an unbound parameter")
      })()
  for (const step of schedule.steps) {
    if (step.kind !== "kernel") throw new Error("a hand-written kernel")
    execute(step, step.args.map(resolve), random.vars)
  }
  return contents
}

const allOps = new Set(elementwise)
const caps = (hasGrid: boolean, subgroupSize?: number): RendererCaps => ({
  target: hasGrid ? "wgsl" : "wasm",
  hasGrid,
  lanes: [1, 4],
  ops: allOps,
  subgroupSize
})

/** A choice of opts for a kernel: the stages are tried with several. */
export type Choose = (kernel: UOp) => ReadonlyArray<Opt.Opt>

export interface StageOptions {
  readonly choose: Choose
  readonly hasGrid: boolean
  readonly subgroupSize?: number
  /** Workgroups along one dimension that joined kernels may take. */
  readonly maxGrid?: number
  /** The device to compile for, if not one with the usual limits. */
  readonly profile?: DeviceProfile.DeviceProfile
}

const profileOf = (options: StageOptions) =>
  options.profile ?? (options.hasGrid ? DeviceProfile.webgpuDefault : DeviceProfile.wasm)

/** The members of a kernel after a stage. */
type Members = (step: KernelStep, options: StageOptions) => ReadonlyArray<Part>

/** A stage that is computed once for each step and setting: later stages begin with it as well. */
const once = (stage: Members): Members => {
  const found = new WeakMap<StageOptions, WeakMap<KernelStep, ReadonlyArray<Part>>>()
  return (step, options) => {
    const ofOptions = found.get(options) ?? new WeakMap<KernelStep, ReadonlyArray<Part>>()
    found.set(options, ofOptions)
    const parts = ofOptions.get(step) ?? stage(step, options)
    ofOptions.set(step, parts)
    return parts
  }
}

const opted: Members = once((step, options) =>
  members(checked("kernel", step.ast)).map(({ ast, slots }) => {
    const result = Postrange.apply(step.name, ast, options.choose(ast), profileOf(options))
    if (result instanceof Postrange.IllegalOpt) throw result
    return { ast: checked("opted", result), slots }
  })
)

const expanded: Members = once((step, options) =>
  opted(step, options).map(({ ast, slots }) => {
    const result = devectorize(step.name, ast, caps(options.hasGrid, options.subgroupSize), profileOf(options))
    if (result instanceof DevectorizeError) throw result
    return { ast: checked("expanded", result), slots }
  })
)

const linear = (step: KernelStep, options: StageOptions): UOp => {
  const target = {
    caps: caps(options.hasGrid, options.subgroupSize),
    maxGrid: options.maxGrid ?? profileOf(options).maxGrid
  }
  const parts = expanded(step, options).map(({ ast, slots }) => ({
    linear: checked("linear", linearize(ast, target.caps)),
    slots
  }))
  return checked("linear", concatenate(parts, target))
}

/** The members one after the other, each on its own arguments. */
const evaluateMembers = (stage: Members) => (options: StageOptions): Execute => (step, args, vars) => {
  for (const { ast, slots } of stage(step, options)) {
    evaluateKernel(ast, new Map(slots.map((slot, i) => [i, args[slot]!])), vars)
  }
}

/** The evaluator at each stage, as a way to execute a kernel. */
export const stages: Readonly<Record<"kernel" | "opted" | "expanded" | "linear", (options: StageOptions) => Execute>> =
  {
    kernel: () => (step, args, vars) => evaluateKernel(checked("kernel", step.ast), args, vars),
    opted: evaluateMembers(opted),
    expanded: evaluateMembers(expanded),
    linear: (options) => (step, args, vars) => evaluateLinear(linear(step, options), args, vars)
  }

/** The first difference between two runs beyond what the program's outputs allow; `undefined` if they agree. */
export const difference = (random: RandomProgram, want: Contents, got: Contents): string | undefined => {
  for (const output of random.outputs) {
    const [a, b] = [want.get(output.id)!, got.get(output.id)!]
    for (let i = 0; i < a.length; i++) {
      const exact = output.dtype.scalar !== "f32"
      const equal = Object.is(a[i], b[i]) || a[i] === b[i] || (!exact && Math.abs(a[i]! - b[i]!) <= output.tolerance)
      if (!equal) return `output ${output.id}[${i}]: ${b[i]} instead of ${a[i]}`
    }
  }
  return undefined
}

/** A random list of legal opts: every kind, on every loop, with divisors of its size. Pure function of seed and kernel. */
export const randomOpts = (seed: number, profile: DeviceProfile.DeviceProfile): Choose => (kernel) => {
  let state = seed * 2654435761 >>> 0
  const next = (n: number): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor(state / 2 ** 32 * n)
  }
  const kinds = ["LOCAL", "GROUP", "UPCAST", "SPREAD", "UNROLL", "LOOP", "OUTER"] as const
  const chosen: Array<Opt.Opt> = []
  let current = kernel
  for (let tries = 0; tries < 12; tries++) {
    const loops = Loops.all(current)
    const loop = loops[next(Math.max(1, loops.length))]
    if (loop === undefined) break
    const divisors = Array.from({ length: loop.size }, (_, i) => i + 1).filter((d) => loop.size % d === 0)
    const kind = kinds[next(kinds.length)]!
    const amount = kind === "LOOP" || kind === "OUTER" ? loop.size : divisors[next(divisors.length)] ?? 1
    const opt = new Opt.Opt({ kind, range: loop.id, amount: Math.max(1, amount) })
    const applied = Postrange.apply("", current, [opt], profile)
    if (applied instanceof Postrange.IllegalOpt) continue
    current = applied
    chosen.push(opt)
  }
  return chosen
}
