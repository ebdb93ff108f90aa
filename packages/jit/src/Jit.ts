import { evaluateIndex, type Program } from "@tg/core-uop/Program"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { argOf, digest, toposort, type UOp, type VarArg, varArg } from "@tg/core-uop/UOp"
import type { RangeifyError } from "@tg/rangeify/Rangeify"
import type { Schedule, Step } from "@tg/rangeify/Schedule"
import {
  type Binding,
  bufferOf,
  Device,
  type DeviceBuffer,
  DeviceError,
  type Dispatch,
  type Executable,
  type Replay,
  type Vars
} from "@tg/runtime/Device"
import type { Scope } from "effect"
import { Context, Effect, Fiber, Layer } from "effect"
import { CompileCache } from "./CompileCache.ts"
import { type CompileError, Compiler } from "./Compiler.ts"
import * as Estimate from "./Estimate.ts"
import * as Meeting from "./Meeting.ts"
import { Pipeline } from "./Pipeline.ts"
import * as Plan from "./Plan.ts"
import * as ProgramKey from "./ProgramKey.ts"
import * as Shared from "./Shared.ts"

/** The host's buffers by id, or slices of them. */
export type Buffers = ReadonlyMap<number, Binding>

/** How a program is bound. */
export interface BindOptions {
  /** Whether launches may share bind groups, which lowers encoding time; default `dispatch`: each has its own. */
  readonly groups?: Shared.BindGroups | undefined
}

/** A tensor program made ready for a device. */
export interface Prepared extends Replay {
  /** The variables a run needs: all of them, and no others. `undefined` accepts any. */
  readonly vars?: ReadonlyArray<string> | undefined
  readonly plan: Plan.ExecutionPlan
  /** The plan's schedule: step i became launch i. For a cached program it is made on demand. */
  readonly schedule: Effect.Effect<Schedule, RangeifyError>
  /** The launches bound to memory, in order: for replays of some of them, or of one repeatedly. */
  readonly dispatches: ReadonlyArray<Dispatch>
}

/** Errors of scheduling, compiling and binding. */
export type JitError = RangeifyError | CompileError | DeviceError

const bad = (message: string): DeviceError => new DeviceError({ reason: "BadArgument", message })

/** The subset of `values` that are variables of this program. */
export const ownOf = (
  { vars }: Pick<Prepared, "vars">,
  values: Readonly<Record<string, number>>
): Readonly<Record<string, number>> =>
  vars === undefined ? values : Object.fromEntries(Object.entries(values).filter(([name]) => vars.includes(name)))

/** A program's interface to the host: sizes of its buffers by id, and bounds of its variables. */
interface Asked {
  readonly buffers: ReadonlyMap<number, { readonly label: string; readonly bytes: number }>
  readonly vars: ReadonlyMap<string, VarArg>
}

/** Fails if one id has two shapes or types. */
const askedBy = (sink: UOp): Asked | DeviceError => {
  const buffers = new Map<number, { readonly node: UOp; readonly label: string; readonly bytes: number }>()
  const vars = new Map<string, VarArg>()
  for (const node of toposort(sink)) {
    if (node.op === "VAR") vars.set(varArg(node).name, varArg(node))
    if (node.op !== "BUFFER") continue
    const { id } = argOf(node, "BUFFER")
    const shape = Shape.of(node)
    const known = buffers.get(id)
    if (known !== undefined && (known.node.dtype !== node.dtype || !Shape.equal(Shape.of(known.node), shape))) {
      return bad(
        `buffer ${id} is ${known.node.dtype.scalar} ${Shape.print(Shape.of(known.node))} in one place and ` +
          `${node.dtype.scalar} ${Shape.print(shape)} in another; give each buffer an id of its own, or reshape it`
      )
    }
    const label = node.arena.labelOf(node) ?? `buffer ${id}`
    buffers.set(id, { node, label, bytes: DType.bytes(node.dtype) * Shape.maxElements(shape) })
  }
  return { buffers, vars }
}

/** The first of the host's buffers that is too small. A missing one is reported by the launch that binds it. */
const checkBuffers = (asked: Asked, given: Buffers): DeviceError | undefined => {
  for (const [id, { bytes, label }] of asked.buffers) {
    const own = given.get(id)
    if (own !== undefined && own.bytes < bytes) {
      return bad(`${label} (id ${id}) has ${bytes} bytes in the program, and ${bufferOf(own).label} has ${own.bytes}`)
    }
  }
  return undefined
}

/** The first missing, unknown or out-of-range variable of a run. */
const checkVars = ({ vars }: Asked, given: Readonly<Record<string, number>>): DeviceError | undefined => {
  for (const [name, { max, min }] of vars) {
    const value = given[name]
    if (value === undefined) return bad(`the program needs a value for the variable ${name}`)
    if (!Number.isInteger(value) || value < min || value > max) {
      return bad(`${name} = ${value} is not an integer from ${min} to ${max}`)
    }
  }
  for (const name in given) {
    if (!vars.has(name)) {
      return bad(`the program has no variable ${name}; it has ${[...vars.keys()].join(", ") || "none"}`)
    }
  }
  return undefined
}

/** A replay that checks its variables before it runs. */
const checked = (asked: Asked, { run, stage, timed }: Replay): Replay => {
  const before = <A>(next: (vars: Vars) => Effect.Effect<A, DeviceError>) => (vars: Vars) =>
    Effect.suspend(() => {
      const problem = checkVars(asked, vars)
      return problem === undefined ? next(vars) : Effect.fail(problem)
    })
  return {
    run: before(run),
    ...(timed === undefined ? {} : { timed: before(timed) }),
    ...(stage === undefined ? {} : { stage: before(stage) })
  }
}

/** A program scheduled and compiled, not bound to memory. */
interface Captured {
  readonly asked: Asked
  readonly schedule: Prepared["schedule"]
  readonly plan: Plan.ExecutionPlan
  readonly executables: ReadonlyArray<Executable>
}

type Parts = ReadonlyMap<number, Shared.Part>

/** The host's buffers as slices of the device's. */
const partsOf = (buffers: Buffers): Parts => {
  const wholes = new Map<DeviceBuffer, number>()
  return new Map([...buffers].map(([id, binding]) => {
    const buffer = bufferOf(binding)
    const whole = wholes.get(buffer) ?? wholes.size
    wholes.set(buffer, whole)
    return [id, { whole, offset: "buffer" in binding ? binding.offset : 0, bytes: buffer.bytes }] as const
  }))
}

/** The binding of a slot: of the host's buffers or of the plan's blocks. */
const boundOf = (
  { name }: Plan.Launch,
  slot: Plan.Slot,
  memory: { readonly buffers: Buffers; readonly blocks: ReadonlyArray<DeviceBuffer> }
): Binding | DeviceError => {
  const { window } = slot
  const binding = slot.kind === "block" ? memory.blocks[slot.block] : memory.buffers.get(slot.id)
  if (binding === undefined) {
    const which = slot.kind === "buffer" ? slot.id : ""
    return bad(`${name} uses buffer ${which}, which the host did not bind`)
  }
  if (slot.kind === "buffer" && slot.whole === true) return bufferOf(binding)
  if (window === undefined) return binding
  const offset = "buffer" in binding ? binding.offset : 0
  return { buffer: bufferOf(binding), offset: offset + window.offset, bytes: window.bytes }
}

/** The launches of a plan, bound to memory. */
const dispatchesOf = (
  { launches }: Plan.ExecutionPlan,
  executables: ReadonlyArray<Executable>,
  memory: Parameters<typeof boundOf>[2]
): ReadonlyArray<Dispatch> | DeviceError => {
  const dispatches: Array<Dispatch> = []
  for (const launch of launches) {
    const buffers: Array<Binding> = []
    for (const slot of launch.slots) {
      const bound = boundOf(launch, slot, memory)
      if (bound instanceof DeviceError) return bound
      buffers.push(bound)
    }
    dispatches.push({ executable: executables[launch.program]!, buffers })
  }
  return dispatches
}

/** The plan with shared bind groups, if there is one. */
const planShared = Effect.fn("Jit.planShared")(function*(
  schedule: Schedule,
  { parts, pipeline: { place }, profile, programOf }: {
    readonly parts: Parts
    readonly pipeline: Pipeline["Service"]
    readonly profile: DeviceProfile
    readonly programOf: (step: Step) => Effect.Effect<Program, CompileError>
  }
) {
  // the counters of grid barriers outlive the plan, so they cannot lie in its shared block
  if (place === undefined || schedule.kept !== undefined) return undefined
  const programs = new Map<string, Program>()
  for (const step of schedule.steps) {
    const key = Plan.keyOf(step)
    if (!programs.has(key)) programs.set(key, yield* programOf(step))
  }
  const plan = Shared.plan(schedule, {
    programOf: (step) => programs.get(Plan.keyOf(step))!,
    parts,
    place,
    maxBindingBytes: profile.maxBindingBytes,
    maxStorageBuffers: profile.maxStorageBuffers
  })
  if (typeof plan !== "string") return plan
  yield* Effect.logWarning(`launches have bindings of their own: ${plan}`)
  return undefined
})

/** Captures a tensor program once and replays it. */
export class Jit extends Context.Service<Jit, {
  /** Schedules and compiles the program ahead of a `prepare` with `groups: "dispatch"`, which then only binds it. */
  readonly compile: (sink: UOp) => Effect.Effect<void, JitError>
  /** The predicted cost of the program, without compiling it. */
  readonly estimate: (sink: UOp) => Effect.Effect<Estimate.Estimate, RangeifyError>
  /**
   * Fails if a grid barrier of a persistent launch timed out in any run so far: the results are void. To be run before any result
   * that was read is used. A `Jit` without such launches may leave it out.
   */
  readonly settle?: Effect.Effect<void, DeviceError> | undefined
  /**
   * Schedules and compiles the program, allocates its temporary memory in the Scope and binds everything to the
   * device. Preparing the same graph again for other buffers only binds; with `groups: "block"`, only if their slices have the same layout.
   */
  readonly prepare: (
    sink: UOp,
    buffers: Buffers,
    options?: BindOptions
  ) => Effect.Effect<Prepared, JitError, Scope.Scope>
}>()("@tg/jit/Jit") {
  static readonly layer = Layer.effect(
    Jit,
    Effect.gen(function*() {
      const device = yield* Device
      const pipeline = yield* Pipeline
      const compiler = yield* Compiler
      const cache = yield* CompileCache
      const meeting = yield* Meeting.make(device, pipeline.persistent)
      // a stage without an `id` may make other programs next time
      const isNamed = pipeline.id !== undefined && compiler.id !== undefined

      const programOf = (step: Step) => compiler.compile(step.name, step.kind === "kernel" ? step.ast : step.custom)

      /** Starts loading a program on the device, and yields to other fibers. */
      const load = Effect.fnUntraced(function*(program: Program) {
        const loading = yield* Effect.forkChild(device.load(program), { startImmediately: true })
        yield* Effect.yieldNow
        return loading
      })

      /** Compiles each distinct kernel; loading on the device overlaps with making the next. */
      const compileAll = Effect.fn("Jit.compileAll")(function*(schedule: Schedule, parts: Parts | undefined) {
        const shared = parts === undefined
          ? undefined
          : yield* planShared(schedule, { parts, pipeline, profile: device.profile, programOf })
        if (shared !== undefined) return { plan: shared, loading: yield* Effect.forEach(shared.programs, load) }
        const programs = new Map<string, Program>()
        const loading: Array<Fiber.Fiber<Executable, DeviceError>> = []
        for (const step of schedule.steps) {
          const key = Plan.keyOf(step)
          if (programs.has(key)) continue
          const program = yield* programOf(step)
          programs.set(key, program)
          loading.push(yield* load(program))
        }
        return { plan: Plan.plan(schedule, (step) => programs.get(Plan.keyOf(step))!), loading }
      })

      // independent of the buffers, so that a program bound several times is compiled once
      const captured = new WeakMap<UOp, Map<string, Captured>>()
      const capture = Effect.fn("Jit.capture")(function*(sink: UOp, parts?: Parts) {
        const own = captured.get(sink) ?? new Map<string, Captured>()
        captured.set(sink, own)
        const form = parts === undefined ? "" : digest(JSON.stringify([...parts]))
        const known = own.get(form)
        if (known !== undefined) return known
        const asked = askedBy(sink)
        if (asked instanceof DeviceError) return yield* asked
        const schedule = yield* Effect.cached(pipeline.schedule(sink))
        const key = ProgramKey.of(sink, {
          profile: device.profile,
          stages: `${pipeline.id} ${compiler.id} ${form}`.trimEnd()
        })
        const kept = isNamed ? yield* cache.get(key) : undefined
        const { loading, plan } = kept === undefined
          ? yield* compileAll(yield* schedule, parts)
          : { plan: kept, loading: yield* Effect.forEach(kept.programs, load) }
        const executables = yield* Effect.forEach(loading, (fiber) => Fiber.join(fiber))
        const made: Captured = { asked, schedule, plan, executables }
        own.set(form, made)
        if (isNamed && kept === undefined) yield* cache.set(key, plan)
        return made
      })

      return Jit.of({
        settle: meeting.settle,
        compile: (sink) => Effect.asVoid(capture(sink)),
        estimate: (sink) => Estimate.estimate(pipeline, sink),
        prepare: Effect.fn("Jit.prepare")(function*(sink, buffers, { groups = "dispatch" } = {}) {
          const parts = groups === "block" && pipeline.place !== undefined ? partsOf(buffers) : undefined
          const { asked, executables, plan, schedule } = yield* capture(sink, parts)
          const problem = checkBuffers(asked, buffers)
          if (problem !== undefined) return yield* problem
          const blocks = yield* Effect.forEach(
            plan.blocks,
            (bytes, i) => i === plan.meeting ? meeting.buffer : device.allocate(bytes, `block ${i}`)
          )
          const dispatches = dispatchesOf(plan, executables, { buffers, blocks })
          if (dispatches instanceof DeviceError) return yield* dispatches
          const replay = yield* device.plan(dispatches)
          return { ...checked(asked, replay), vars: [...asked.vars.keys()], plan, schedule, dispatches }
        })
      })
    })
  )
}

/** Launches of a plan whose grid is not empty for these variables. */
export const launchCount = (plan: Plan.ExecutionPlan, vars: Readonly<Record<string, number>>): number =>
  plan.launches.filter((l) => plan.programs[l.program]!.grid.every((n) => evaluateIndex(n, vars) > 0)).length
