/** One launch on a device, on random data: compiled with any opts of its members, timed and read. */
import type { RenderError } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import type * as KernelLimits from "@tg/jit/KernelLimits"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Stages from "@tg/jit/Stages"
import { members } from "@tg/rangeify/Horizontal"
import { Device, type DeviceBuffer, type DeviceError, type Executable, type Replay } from "@tg/runtime/Device"
import { Duration, Effect, type Scope } from "effect"
import type { Output } from "./Check.ts"
import * as Inputs from "./Inputs.ts"
import type * as Launch from "./Launch.ts"
import * as Moves from "./Moves.ts"

/** Why opts give no program. */
export type CompileError = Stages.StageError | KernelLimits.KernelLimit | RenderError | DeviceError

/** How a kernel is set up. */
export interface Setup {
  /** Values of the symbolic variables. */
  readonly vars: Inputs.Vars
  /** Bytes that one launch moves. */
  readonly bytes: number
  /** Launches take turns on what they read, so that this many bytes pass before the same come again. */
  readonly rotateBytes: number
  readonly seed: number
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

/** Takes the time again, on what has been prepared. */
export interface Timing {
  readonly again: Effect.Effect<number, DeviceError>
}

/** Buffers smaller than this are activations: a launch finds them in the caches, as the one before left them there. */
const sharedBytes = 65536
/** Random words are made up to here, and repeated. */
const patternWords = 2 ** 20
const mostCopies = 64
/** Work in front of what is timed. */
const awakeMicros = 3000

const bytesOf = (words: Uint32Array): Uint8Array => new Uint8Array(words.buffer, words.byteOffset, words.byteLength)

/** Allocates and fills the buffers of a kernel (spec `kernel`) in the Scope. */
export const make: (
  name: string,
  kernel: UOp,
  setup: Setup
) => Effect.Effect<Workbench, DeviceError, Device | Pipeline | Scope.Scope> = Effect.fn("Workbench.make")(
  function*(name, kernel, { bytes, rotateBytes, seed, vars: given }) {
    const device = yield* Device
    const pipeline = yield* Pipeline
    const { profile } = pipeline
    const vars = Inputs.varsOf(kernel, given)
    const all = Inputs.argumentsOf(kernel)
    const patternOf = (argument: Inputs.Argument, copy = 0) =>
      Inputs.words(argument, seed + argument.slot + all.length * copy, Math.min(argument.words, patternWords))

    const fill = Effect.fnUntraced(function*(buffer: DeviceBuffer, pattern: Uint32Array, words: number) {
      for (let at = 0; at < words; at += pattern.length) {
        const part = pattern.subarray(0, Math.min(pattern.length, words - at))
        yield* device.write(buffer, bytesOf(part), 4 * at)
      }
    })
    const allocate = (argument: Inputs.Argument, pattern: Uint32Array | undefined) =>
      device.allocate(4 * argument.words, `${name} ${argument.slot}`).pipe(
        Effect.tap((buffer) => pattern === undefined ? Effect.void : fill(buffer, pattern, argument.words))
      )

    const isRotated = ({ role, words }: Inputs.Argument): boolean => role.kind !== "output" && 4 * words >= sharedBytes
    const readBytes = all.filter(isRotated).reduce((n, { words }) => n + 4 * words, 0)
    const most = (bytes: number): number =>
      bytes === 0 ? 1 : Math.max(1, Math.min(mostCopies, Math.ceil(rotateBytes / bytes)))
    const picks = Inputs.picks(kernel)
    /** As many as make the launches read something else each time: other copies, or other places in them. */
    const copiesOf = (argument: Inputs.Argument): number => {
      if (argument.role.kind === "output") return 1
      if (isRotated(argument)) return most(readBytes)
      return picks || argument.role.kind === "places" ? most(bytes) : 1
    }
    const buffers = yield* Effect.forEach(
      all,
      (argument) =>
        Effect.forEach(
          Array.from({ length: copiesOf(argument) }).keys(),
          (copy) => allocate(argument, argument.role.kind === "output" ? undefined : patternOf(argument, copy))
        )
    )
    const bufferOf = new Map(all.map(({ slot }, i) => [slot, buffers[i]!]))
    const bind = (executable: Executable, launch: number): ReadonlyArray<DeviceBuffer> =>
      executable.program.bindings.map(({ slot }) => {
        const some = bufferOf.get(slot)!
        return some[launch % some.length]!
      })
    const outputs = all.filter(({ role }) => role.kind === "output")
    const parts = members(kernel)
    // most of what is tried changes one member
    const linears = new Map<string, UOp>()
    const linearOf = Effect.fnUntraced(function*(member: number, opts: Launch.Opts[number]) {
      const text = `${member}: ${Moves.print(opts)}`
      const known = linears.get(text)
      if (known !== undefined) return known
      const { linear } = yield* Stages.ofMember(pipeline, name, parts[member]!.ast, opts)
      linears.set(text, linear)
      return linear
    })
    const settle = device.read(bufferOf.get(outputs[0]!.slot)![0]!, 0, 4)

    return {
      kernel,
      compile: Effect.fn("Workbench.compile")(function*(opts) {
        const made = yield* Effect.forEach(
          parts,
          ({ slots }, i) => Effect.map(linearOf(i, opts[i]!), (linear) => ({ linear, slots }))
        )
        return yield* device.load(yield* pipeline.render(name, yield* pipeline.join(made)))
      }),
      time: Effect.fn("Workbench.time")(function*(executable, launches) {
        const dispatches = Array.from({ length: launches }, (_, i) => ({ executable, buffers: bind(executable, i) }))
        const replay = yield* device.plan(dispatches)
        let last = Infinity
        /** An idle device lowers its clock: it works on the same until it is timed. */
        const awake = Effect.suspend(() =>
          Effect.replicateEffect(replay.run(vars), Math.round(awakeMicros / last), { discard: true })
        )
        const again = Effect.map(duration(replay, vars, settle, profile.kind), (micros) => {
          last = micros
          return micros / launches
        })
        return { again: replay.timed === undefined ? again : Effect.andThen(awake, again) }
      }),
      outputs: Effect.fn("Workbench.outputs")(function*(executable) {
        for (const argument of outputs) {
          yield* fill(bufferOf.get(argument.slot)![0]!, patternOf(argument), argument.words)
        }
        const replay = yield* device.plan([{ executable, buffers: bind(executable, 0) }])
        yield* replay.run(vars)
        return yield* Effect.forEach(outputs, ({ scalar, slot }) =>
          Effect.map(
            device.read(bufferOf.get(slot)![0]!),
            (read): Output => ({ scalar, words: new Uint32Array(read.slice().buffer) })
          ))
      }, Effect.scoped),
      data: () =>
        all.map((argument) => {
          const pattern = patternOf(argument)
          const words = Uint32Array.from({ length: argument.words }, (_, i) => pattern[i % pattern.length]!)
          return argument.scalar === "f32"
            ? new Float32Array(words.buffer)
            : argument.scalar === "i32"
            ? new Int32Array(words.buffer)
            : words
        })
    }
  }
)

/**
 * Microseconds that the device works on a replay: by its own clock if it has one, else by ours, from when everything is
 * submitted until all is done.
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
