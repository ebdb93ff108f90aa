/** Programs that were compiled before run without the compiler: it is fetched when one is needed that was not. */
import type { UOp } from "@tg/core-uop/UOp"
import * as Binding from "@tg/jit/Binding"
import { CompileCache } from "@tg/jit/CompileCache"
import { Jit } from "@tg/jit/Jit"
import type { Pipeline } from "@tg/jit/Pipeline"
import * as ProgramKey from "@tg/jit/ProgramKey"
import { Device, DeviceError } from "@tg/runtime/Device"
import { Context, Effect, Fiber, Layer, Scope } from "effect"

/** The compiler of a device. */
export interface Compiler {
  readonly jit: Jit["Service"]
  readonly pipeline: Pipeline["Service"]
}

/** What a compiler compiles for. */
export interface Target {
  /** Names the renderer with all that it was given; what else programs depend on is the build and the device's profile. */
  readonly stages: string
  /** Fetches and starts the compiler. */
  readonly compiler: Effect.Effect<Compiler, never, Device | Scope.Scope>
}

/** The compiler of the device in use, fetched when it is asked for. */
export class Compiling extends Context.Service<Compiling, Effect.Effect<Compiler>>()("@tg/web/Replaying/Compiling") {}

/** A compiler remembers nothing by itself: whoever asks it does. */
const nothing = { get: () => Effect.undefined, set: () => Effect.void }

const make = Effect.fnUntraced(function*({ compiler, stages }: Target) {
  const device = yield* Device
  const cache = yield* CompileCache
  let started: Compiler | undefined
  const compiling = yield* Effect.cached(
    compiler.pipe(
      Effect.provideService(Device, device),
      Effect.provideService(CompileCache, nothing),
      Scope.provide(yield* Effect.scope),
      Effect.tap((compiler) => Effect.sync(() => started = compiler))
    )
  )
  const keyOf = (sink: UOp): string => ProgramKey.of(sink, { profile: device.profile, stages })

  // what does not depend on the buffers, of programs that are bound more than once
  const replayed = new WeakMap<UOp, Binding.Compiled>()
  const compiled = new WeakSet<UOp>()

  /** What was kept of a program, if anything was. */
  const replay = Effect.fn("Replaying.replay")(function*(sink: UOp) {
    const known = replayed.get(sink)
    if (known !== undefined || compiled.has(sink)) return known
    const plan = yield* cache.get(keyOf(sink))
    if (plan === undefined) return undefined
    const asked = Binding.askedBy(sink)
    if (asked instanceof DeviceError) return yield* asked
    const loading = yield* Effect.forEach(plan.programs, (program) =>
      // between two of them other fibers get their turn
      Effect.tap(Effect.forkChild(device.load(program), { startImmediately: true }), Effect.yieldNow))
    const executables = yield* Effect.forEach(loading, (fiber) => Fiber.join(fiber))
    // a plan does not tell what it was made from
    const schedule = Effect.flatMap(compiling, ({ pipeline }) => pipeline.schedule(sink))
    const made: Binding.Compiled = { asked, plan, executables, schedule }
    replayed.set(sink, made)
    return made
  })

  const jit: Jit["Service"] = {
    compile: (sink) =>
      Effect.flatMap(
        replay(sink),
        (kept) => kept === undefined ? Effect.flatMap(compiling, ({ jit }) => jit.compile(sink)) : Effect.void
      ),
    estimate: (sink) => Effect.flatMap(compiling, ({ jit }) => jit.estimate(sink)),
    get settle() {
      return started?.jit.settle
    },
    prepare: Effect.fn("Replaying.prepare")(function*(sink, buffers, options) {
      // which launches share bindings depends on the buffers
      const isKept = options?.groups !== "block"
      const kept = isKept ? yield* replay(sink) : undefined
      if (kept !== undefined) return yield* Binding.bind(device, kept, { buffers })
      const { jit } = yield* compiling
      const prepared = yield* jit.prepare(sink, buffers, options)
      if (isKept && prepared.plan.meeting === undefined && !compiled.has(sink)) {
        compiled.add(sink)
        yield* cache.set(keyOf(sink), prepared.plan)
      }
      return prepared
    })
  }
  return Context.make(Jit, jit).pipe(Context.add(Compiling, compiling))
})

/** A `Jit` for a target, over the `CompileCache` that the context has. */
export const layer = (target: Target): Layer.Layer<Jit | Compiling, never, Device> => Layer.effectContext(make(target))
