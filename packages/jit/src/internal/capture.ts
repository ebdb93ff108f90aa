/** What makes a `Jit`: schedules and compiles, or takes what was compiled before. */
import type { Program } from "@tg/core-uop/Program"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { digest, type UOp } from "@tg/core-uop/UOp"
import type { Schedule, Step } from "@tg/rangeify/Schedule"
import { bufferOf, Device, type DeviceBuffer, DeviceError, type Executable } from "@tg/runtime/Device"
import { Effect, Fiber, type Scope } from "effect"
import * as Binding from "../Binding.ts"
import { CompileCache } from "../CompileCache.ts"
import { type CompileError, Compiler } from "../Compiler.ts"
import * as Estimate from "../Estimate.ts"
import type { Buffers, Jit } from "../Jit.ts"
import * as Meeting from "../Meeting.ts"
import { Pipeline } from "../Pipeline.ts"
import * as Plan from "../Plan.ts"
import * as ProgramKey from "../ProgramKey.ts"
import * as Shared from "../Shared.ts"

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

/** A `Jit` over the stages of the context. */
export const make: Effect.Effect<Jit["Service"], never, Device | Pipeline | Compiler | Scope.Scope> = Effect.gen(
  function*() {
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
    const captured = new WeakMap<UOp, Map<string, Binding.Compiled>>()
    const capture = Effect.fn("Jit.capture")(function*(sink: UOp, parts?: Parts) {
      const own = captured.get(sink) ?? new Map<string, Binding.Compiled>()
      captured.set(sink, own)
      const form = parts === undefined ? "" : digest(JSON.stringify([...parts]))
      const known = own.get(form)
      if (known !== undefined) return known
      const asked = Binding.askedBy(sink)
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
      const made: Binding.Compiled = { asked, schedule, plan, executables }
      own.set(form, made)
      if (isNamed && kept === undefined) yield* cache.set(key, plan)
      return made
    })

    const jit: Jit["Service"] = {
      settle: meeting.settle,
      compile: (sink) => Effect.asVoid(capture(sink)),
      estimate: (sink) => Estimate.estimate(pipeline, sink),
      prepare: Effect.fn("Jit.prepare")(function*(sink, buffers, { groups = "dispatch" } = {}) {
        const parts = groups === "block" && pipeline.place !== undefined ? partsOf(buffers) : undefined
        const compiled = yield* capture(sink, parts)
        return yield* Binding.bind(device, compiled, { buffers, meeting: meeting.buffer })
      })
    }
    return jit
  }
)
