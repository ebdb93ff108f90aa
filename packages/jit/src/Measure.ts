/** Microbenchmarks of a device for its profile: launch overhead and memory bandwidth. */
import * as DType from "@tg/core-uop/DType"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { Arena } from "@tg/core-uop/UOp"
import { Device } from "@tg/runtime/Device"
import * as Program from "@tg/tensor/Program"
import { buffer, type Tensor } from "@tg/tensor/Tensor"
import { Effect } from "effect"
import { Jit } from "./Jit.ts"
import * as Profiler from "./Profiler.ts"

/** Reading memory of one size: the time of the launch, and the bandwidth without launch overhead. */
export interface Reading {
  readonly bytes: number
  readonly micros: number
  readonly bytesPerMicro: number
}

/** The results. Times are per launch, of many launches submitted without waiting. */
export interface Measured {
  /** Of a nearly empty launch that depends on the one before it. An upper bound, never 0, where noise exceeds it. */
  readonly dispatchMicros: number
  /** Host time to submit a launch. 0 on synchronous devices. */
  readonly encodeMicros: number
  readonly readings: ReadonlyArray<Reading>
  /** The device's profile with these speeds. */
  readonly profile: DeviceProfile
}

/** Sizes and repetitions. */
export interface Options {
  /** Bytes to read; by default up to 256 MiB on a GPU and 16 MiB on a CPU. Sizes beyond the device's limits are left out. */
  readonly sizes?: ReadonlyArray<number> | undefined
  /** Repetitions, of which the minimum counts; default 5. */
  readonly repeats?: number | undefined
}

const few = 8
const many = 136
/** Long against the clock's resolution and jitter. */
const leastMicros = 20_000
const mostRuns = 2000
/** Elements reduced to one output: work for a workgroup, and writes that are negligible beside the reads. */
const row = 1024

const wholeSizes = { gpu: [2 ** 20, 2 ** 24, 2 ** 26, 2 ** 28], cpu: [2 ** 18, 2 ** 20, 2 ** 24] } as const

/** A chain of dependent launches, which `contiguous` keeps from fusing. */
const chain = (launches: number): Program.TensorProgram => {
  const arena = new Arena()
  const of = (id: number): Tensor => buffer(arena, id, { shape: [64], dtype: DType.u32 })
  let x = of(0)
  for (let i = 1; i < launches; i++) x = x.add(1).contiguous()
  return Program.make([Program.assign(of(1), x.add(1))])
}

/** A row reduction: one output for each 4 KiB read. */
const reading = (bytes: number): Program.TensorProgram => {
  const arena = new Arena()
  const rows = bytes / 4 / row
  const x = buffer(arena, 0, { shape: [rows, row], dtype: DType.f32 })
  return Program.make([Program.assign(buffer(arena, 1, { shape: [rows], dtype: DType.f32 }), x.sum(1))])
}

/** Measures the device of the context. Frees everything it allocates. */
export const measure = Effect.fn("Measure.measure")(function*({ repeats = 5, sizes }: Options = {}) {
  const device = yield* Device
  const jit = yield* Jit
  const { profile } = device

  /** A program, prepared, and how often it has to run for the clock. */
  const prepare = Effect.fnUntraced(function*(program: Program.TensorProgram, bytes: readonly [number, number]) {
    const buffers = yield* Effect.forEach(bytes, (size, i) => device.allocate(size, `measured ${i}`))
    const prepared = yield* jit.prepare(program.sink, new Map(buffers.map((b, i) => [i, b] as const)))
    yield* Profiler.backToBack(prepared, {}, 1)
    const once = (yield* Profiler.backToBack(prepared, {}, 2)).micros
    const runs = Math.min(mostRuns, Math.max(2, Math.ceil(leastMicros / once)))
    return { launches: prepared.dispatches.length, run: Profiler.backToBack(prepared, {}, runs) }
  })

  // other load only adds time: the minimum is the least noisy
  const least = (all: ReadonlyArray<Profiler.BackToBack>) => ({
    micros: Math.min(...all.map((a) => a.micros)),
    encodeMicros: Math.min(...all.map((a) => a.encodeMicros))
  })

  const { dispatchMicros, encodeMicros } = yield* Effect.scoped(Effect.gen(function*() {
    const short = yield* prepare(chain(few), [256, 256])
    const long = yield* prepare(chain(many), [256, 256])
    // in turns: load that comes while one of them runs would make their difference negative
    const turns = yield* Effect.replicateEffect(Effect.all([short.run, long.run]), repeats)
    const shortest = least(turns.map(([a]) => a))
    const longest = least(turns.map(([, b]) => b))
    const each = (
      a: number,
      b: number
    ): number => (b > a ? (b - a) / (long.launches - short.launches) : b / long.launches)
    return {
      dispatchMicros: each(shortest.micros, longest.micros),
      encodeMicros: each(shortest.encodeMicros, longest.encodeMicros)
    }
  }))

  const room = Math.min(profile.maxBindingBytes, profile.maxBufferBytes, (profile.memoryBytes ?? Infinity) / 2)
  const readings: Array<Reading> = []
  for (const bytes of (sizes ?? wholeSizes[profile.kind]).filter((size) => size <= room)) {
    const { micros } = yield* Effect.scoped(Effect.gen(function*() {
      const { run } = yield* prepare(reading(bytes), [bytes, bytes / row])
      return least(yield* Effect.replicateEffect(run, repeats))
    }))
    readings.push({ bytes, micros, bytesPerMicro: bytes / Math.max(micros - dispatchMicros, micros / 10) })
  }
  // smaller ones fit in caches
  const largest = readings.at(-1)
  const measured: Measured = {
    dispatchMicros: rounded(dispatchMicros),
    encodeMicros: rounded(encodeMicros),
    readings: readings.map((r) => ({ ...r, micros: rounded(r.micros), bytesPerMicro: rounded(r.bytesPerMicro) })),
    profile: {
      ...profile,
      dispatchMicros: rounded(dispatchMicros),
      bytesPerMicro: largest === undefined ? profile.bytesPerMicro : rounded(largest.bytesPerMicro)
    }
  }
  return measured
})

const rounded = (value: number): number => Number(value.toPrecision(4))
