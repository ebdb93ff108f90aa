/** Runs measuring kernels on a device, and times them: by the device's clock where it has one, else by ours. */
import type { Program } from "@tg/core-uop/Program"
import type { DeviceBuffer, DeviceError, DeviceShape, Replay } from "@tg/runtime/Device"
import { Clock, Effect, Schema, type Scope } from "effect"
import * as Fits from "./fits.ts"

/** Values of a kernel's variables. */
export type Vars = Readonly<Record<string, number>>

/** Why a quantity could not be measured, where the device did nothing wrong. */
export class Unmeasurable extends Schema.TaggedError<Unmeasurable>()("Unmeasurable", { message: Schema.String }) {}

/** Why a probe ends early. */
export type Failure = DeviceError | Unmeasurable

/** A kernel with its buffers, ready to run. */
export interface Prepared {
  readonly replay: Replay
  /** What is waited for. */
  readonly last: DeviceBuffer
}

/** The shortest run that tells anything: by either clock, and in times of a run that does next to nothing. */
const leastMicros = { device: 60, host: 3000 } as const
const leastTimes = 8
/** What no probe waits for: steps are no longer doubled. */
const mostSteps = 2 ** 20

/** A place to measure. */
export interface Bench {
  readonly device: DeviceShape
  /** Threads of a usual workgroup here. */
  readonly threads: number
  /** Memory, held until the scope closes. */
  readonly memory: (bytes: number) => Effect.Effect<DeviceBuffer, DeviceError, Scope.Scope>
  readonly prepare: (
    programs: ReadonlyArray<readonly [Program, ReadonlyArray<DeviceBuffer>]>
  ) => Effect.Effect<Prepared, DeviceError, Scope.Scope>
  /** Microseconds of a single run. */
  readonly once: (prepared: Prepared, vars: Vars) => Effect.Effect<number, Failure>
  /** Microseconds of one run, of readings that confirm each other (`Fits.confirmed`). */
  readonly time: (prepared: Prepared, vars: Vars) => Effect.Effect<number, Failure>
  /** Steps with which a kernel runs long enough. */
  readonly stepsFor: (prepared: Prepared, vars?: Vars) => Effect.Effect<number, Failure>
  /** Timings of a kernel with those steps, and four times as many. */
  readonly twice: (prepared: Prepared, vars?: Vars) => Effect.Effect<readonly [Fits.Sample, Fits.Sample], Failure>
  /** The same of the host's time to submit one run. */
  readonly encode: (prepared: Prepared, vars: Vars) => Effect.Effect<number, Failure>
}

const usualThreads = 256
const more = 4

/** Reads a time as often as it takes to be confirmed. */
export const confirmed = <E>(read: Effect.Effect<number, E>): Effect.Effect<number, E> =>
  Effect.gen(function*() {
    const micros: Array<number> = []
    for (;;) {
      micros.push(yield* read)
      const found = micros.length < Fits.readings.first ? undefined : Fits.confirmed(micros)
      if (found !== undefined) return found
    }
  })

/** A place to measure, until `deadline` by the clock: then whoever asks for a time is told that there is none left. */
export const make = (device: DeviceShape, deadline: number): Bench => {
  const inTime = Effect.flatMap(
    Clock.currentTimeMillis,
    (now) => now < deadline ? Effect.void : Effect.fail(new Unmeasurable({ message: "there was no time left" }))
  )
  const settle = ({ last }: Prepared) => device.read(last, 0, 4)
  const micros = <A, E>(work: Effect.Effect<A, E>): Effect.Effect<number, E> =>
    Effect.gen(function*() {
      const began = yield* Clock.currentTimeNanos
      yield* work
      return Number((yield* Clock.currentTimeNanos) - began) / 1000
    })
  const once = (prepared: Prepared, vars: Vars): Effect.Effect<number, DeviceError> =>
    prepared.replay.timed?.(vars) ?? micros(Effect.andThen(prepared.replay.run(vars), settle(prepared)))
  const repeated = (read: Effect.Effect<number, DeviceError>): Effect.Effect<number, Failure> =>
    confirmed(Effect.andThen(inTime, read))

  const bench: Bench = {
    device,
    threads: Math.min(usualThreads, device.profile.maxWorkgroupThreads),
    memory: (bytes) => device.allocate(bytes, "measuring"),
    prepare: Effect.fnUntraced(function*(programs) {
      const dispatches = yield* Effect.forEach(
        programs,
        ([program, buffers]) => Effect.map(device.load(program), (executable) => ({ executable, buffers }))
      )
      return { replay: yield* device.plan(dispatches), last: dispatches.at(-1)!.buffers[0]! as DeviceBuffer }
    }),
    once: (prepared, vars) => Effect.andThen(inTime, once(prepared, vars)),
    time: (prepared, vars) => repeated(once(prepared, vars)),
    stepsFor: Effect.fnUntraced(function*(prepared, vars = {}) {
      const least = prepared.replay.timed === undefined ? leastMicros.host : leastMicros.device
      yield* bench.once(prepared, { ...vars, steps: 1 })
      const wanted = Math.max(least, leastTimes * (yield* bench.time(prepared, { ...vars, steps: 1 })))
      const isLong = (steps: number) =>
        Effect.map(bench.once(prepared, { ...vars, steps }), (micros) => micros >= wanted)
      let steps = 16
      // one reading that is far too long must not end this: what runs for too short a time tells of launches alone
      while (steps < mostSteps && !((yield* isLong(steps)) && (yield* isLong(steps)))) steps *= 2
      return steps
    }),
    twice: Effect.fnUntraced(function*(prepared, vars = {}) {
      const steps = yield* bench.stepsFor(prepared, vars)
      const sample = (size: number) =>
        Effect.map(bench.time(prepared, { ...vars, steps: size }), (micros): Fits.Sample => ({ size, micros }))
      return [yield* sample(steps), yield* sample(more * steps)] as const
    }),
    encode: (prepared, vars) =>
      Effect.andThen(
        settle(prepared),
        repeated(Effect.tap(micros(prepared.replay.run(vars)), () => settle(prepared)))
      )
  }
  return bench
}
