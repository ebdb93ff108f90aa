/** What makes a `Jit`: schedules and compiles, or takes what was compiled before. */
import type { Program } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import type { Schedule, Step } from "@tg/rangeify/Schedule"
import { Device, DeviceError, type Executable } from "@tg/runtime/Device"
import { Effect, Fiber, type Scope } from "effect"
import * as Binding from "../Binding.ts"
import { CompileCache } from "../CompileCache.ts"
import { Compiler } from "../Compiler.ts"
import * as Estimate from "../Estimate.ts"
import type { Jit } from "../Jit.ts"
import * as Meeting from "../Meeting.ts"
import { Pipeline } from "../Pipeline.ts"
import * as Plan from "../Plan.ts"
import * as ProgramKey from "../ProgramKey.ts"
import { formOf, type Layout, layoutOf, planShared, scheduled } from "./sharedPlan.ts"
import * as Trials from "./trials.ts"

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
    const compileAll = Effect.fn("Jit.compileAll")(function*(schedule: Schedule, layout?: Layout) {
      const shared = yield* planShared(schedule, { layout, pipeline, profile: device.profile, programOf })
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
    const capture = Effect.fn("Jit.capture")(function*(sink: UOp, layout?: Layout) {
      const own = captured.get(sink) ?? new Map<string, Binding.Compiled>()
      captured.set(sink, own)
      const form = formOf(pipeline, layout)
      const known = own.get(form)
      if (known !== undefined) return known
      const asked = Binding.askedBy(sink)
      if (asked instanceof DeviceError) return yield* asked
      const schedule = yield* Effect.cached(scheduled(pipeline, sink, layout))
      const key = ProgramKey.of(sink, {
        profile: device.profile,
        stages: `${pipeline.id} ${compiler.id} ${form}`.trimEnd()
      })
      const kept = isNamed ? yield* cache.get(key) : undefined
      const { loading, plan } = kept === undefined
        ? yield* compileAll(yield* schedule, layout)
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
        return yield* Trials.bound(
          { cache, compiler, device, meeting, pipeline },
          capture(sink, layoutOf(pipeline, groups, buffers)),
          (compiled) => Binding.bind(device, compiled, { buffers, meeting: meeting.buffer })
        )
      })
    }
    return jit
  }
)
