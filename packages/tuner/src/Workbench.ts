/** One launch on a device, on random data: compiled with any opts of its members, timed and read. */
import type { RenderError } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import type * as KernelLimits from "@tg/jit/KernelLimits"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Stages from "@tg/jit/Stages"
import * as Horizontal from "@tg/rangeify/Horizontal"
import { Device, type DeviceError, type Executable, type Replay } from "@tg/runtime/Device"
import { Duration, Effect, type Scope } from "effect"
import type { Output } from "./Check.ts"
import * as Data from "./Data.ts"
import * as Inputs from "./Inputs.ts"
import type * as Launch from "./Launch.ts"
import * as Moves from "./Moves.ts"

/** Why opts fail to compile. */
export type CompileError = Stages.StageError | KernelLimits.KernelLimit | RenderError | DeviceError

/** The setup of a kernel. */
export interface Setup extends Data.Setup {
  /** Values of the symbolic variables. */
  readonly vars: Inputs.Vars
}

/** A kernel with its data on the device. */
export interface Workbench {
  readonly kernel: UOp
  /** As the compiler does: each member with its own opts, joined in front of the renderer. */
  readonly compile: (opts: Launch.Opts) => Effect.Effect<Executable, CompileError>
  /** Microseconds of one launch among `launches` that follow one another. */
  readonly time: (executable: Executable, launches: number) => Effect.Effect<Timing, DeviceError, Scope.Scope>
  /** What one launch computes. */
  readonly outputs: (executable: Executable) => Effect.Effect<ReadonlyArray<Output>, DeviceError>
  /** The data of the first copy, by slot, as a launch finds it. */
  readonly data: () => ReadonlyArray<Float32Array | Int32Array | Uint32Array>
}

/** A prepared timing, which can be repeated. */
export interface Timing {
  readonly again: Effect.Effect<number, DeviceError>
}

/** Warm-up work in front of a timing. */
const awakeMicros = 3000

/** Allocates and fills the buffers of a kernel (spec `kernel`) in the Scope. */
export const make: (
  name: string,
  kernel: UOp,
  setup: Setup
) => Effect.Effect<Workbench, DeviceError, Device | Pipeline | Scope.Scope> = Effect.fn("Workbench.make")(
  function*(name, kernel, setup) {
    const device = yield* Device
    const pipeline = yield* Pipeline
    const vars = Inputs.varsOf(kernel, setup.vars)
    const data = yield* Data.make(name, kernel, setup)
    const linearOf = members(pipeline, name, kernel)
    const settle = device.read(data.first(data.outputs[0]!), 0, 4)

    return {
      kernel,
      compile: Effect.fn("Workbench.compile")(function*(opts) {
        const parts = yield* Effect.forEach(opts, (own, member) => linearOf(member, own))
        return yield* device.load(yield* pipeline.render(name, yield* pipeline.join(name, parts)))
      }),
      time: Effect.fn("Workbench.time")(function*(executable, launches) {
        const dispatches = Array.from(
          { length: launches },
          (_, i) => ({ executable, buffers: data.bind(executable, i) })
        )
        const replay = yield* device.plan(dispatches)
        const sample = sampled(replay, vars, settle, pipeline.profile.kind)
        return { again: Effect.map(sample, (micros) => micros / launches) }
      }),
      outputs: Effect.fn("Workbench.outputs")(function*(executable) {
        for (const argument of data.outputs) yield* data.refill(argument)
        const replay = yield* device.plan([{ executable, buffers: data.bind(executable, 0) }])
        yield* replay.run(vars)
        return yield* Effect.forEach(data.outputs, (argument) =>
          Effect.map(
            device.read(data.first(argument)),
            (read): Output => ({ scalar: argument.scalar, words: new Uint32Array(read.slice().buffer) })
          ))
      }, Effect.scoped),
      data: data.values
    }
  }
)

/** A member in linear form. */
type Part = Parameters<Pipeline["Service"]["join"]>[1][number]

/** The members of a launch in linear form, with any opts. Memoised: most candidates change one member. */
const members = (pipeline: Pipeline["Service"], name: string, kernel: UOp) => {
  const parts = Horizontal.members(kernel)
  const known = new Map<string, Part>()
  return Effect.fnUntraced(function*(member: number, opts: Launch.Opts[number]) {
    const key = `${member}: ${Moves.print(opts)}`
    const found = known.get(key)
    if (found !== undefined) return found
    const { ast, slots } = parts[member]!
    const { linear } = yield* Stages.ofMember(pipeline, name, ast, opts)
    const made: Part = { linear, slots }
    known.set(key, made)
    return made
  })
}

/**
 * A sample of what a replay takes. Where the device has a clock, the same work is done in front of it, since an idle one lowers its frequency; nothing in front of the first
 * sample, before which nobody knows how long it takes.
 */
export const sampled = (
  replay: Replay,
  vars: Inputs.Vars,
  settle: Effect.Effect<unknown, DeviceError>,
  kind: "gpu" | "cpu"
): Effect.Effect<number, DeviceError> => {
  let last = Infinity
  const awake = Effect.suspend(() =>
    Effect.replicateEffect(replay.run(vars), Math.round(awakeMicros / last), { discard: true })
  )
  const sample = Effect.map(duration(replay, vars, settle, kind), (micros) => last = micros)
  return replay.timed === undefined ? sample : Effect.andThen(awake, sample)
}

/**
 * Microseconds of a replay: by timestamps of the device if it has them, else by the host's clock from submission to completion.
 */
const duration = (
  replay: Replay,
  vars: Inputs.Vars,
  settle: Effect.Effect<unknown, DeviceError>,
  kind: "gpu" | "cpu"
): Effect.Effect<number, DeviceError> => {
  if (replay.timed !== undefined) return replay.timed(vars)
  const micros = <A>(work: Effect.Effect<A, DeviceError>) =>
    Effect.map(Effect.timed(work), ([time]) => Duration.toMillis(time) * 1000)
  return kind === "cpu"
    ? micros(replay.run(vars))
    : Effect.andThen(Effect.andThen(settle, replay.run(vars)), micros(settle))
}
