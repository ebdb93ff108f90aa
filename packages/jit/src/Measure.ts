/** How fast a device is: what its profile needs to know, measured by running programs on it. */
import * as DType from "@tg/core-uop/DType"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { Arena } from "@tg/core-uop/UOp"
import { Device } from "@tg/runtime/Device"
import * as Program from "@tg/tensor/Program"
import { buffer, type Tensor } from "@tg/tensor/Tensor"
import { Effect } from "effect"
import { Jit } from "./Jit.ts"
import * as Profiler from "./Profiler.ts"

/** Reading memory of one size: the whole launch, and the speed without what any launch costs. */
export interface Reading {
  readonly bytes: number
  readonly micros: number
  readonly bytesPerMicro: number
}

/** What was found. Times are those of one launch among many that are submitted without waiting. */
export interface Measured {
  /** A launch that depends on the one before it and does next to nothing. */
  readonly dispatchMicros: number
  /** Of the host's time, to submit a launch. 0 where the device computes while it is called. */
  readonly encodeMicros: number
  readonly readings: ReadonlyArray<Reading>
  /** The device's profile with these speeds. */
  readonly profile: DeviceProfile
}

/** How thorough to be. */
export interface Options {
  /** Sizes to read; by default up to 256 MiB where that is possible, and up to 16 MiB on a CPU. */
  readonly sizes?: ReadonlyArray<number> | undefined
  /** Each figure is the least of so many, 5. */
  readonly repeats?: number | undefined
}

const few = 8
const many = 136
/** Long enough for the clock, and for what else happens to even out. */
const leastMicros = 20_000
const mostRuns = 2000
/** Values of one output: enough work for a thread group, and few outputs to write. */
const row = 1024

const wholeSizes = { gpu: [2 ** 20, 2 ** 24, 2 ** 26, 2 ** 28], cpu: [2 ** 18, 2 ** 20, 2 ** 24] } as const

/** As many launches one behind the other, each on what the one before left. */
const chain = (launches: number): Program.TensorProgram => {
  const arena = new Arena()
  const of = (id: number): Tensor => buffer(arena, id, { shape: [64], dtype: DType.u32 })
  let x = of(0)
  for (let i = 1; i < launches; i++) x = x.add(1).contiguous()
  return Program.make([Program.assign(of(1), x.add(1))])
}

/** Sums of rows: one number for each 4 KiB that are read. */
const reading = (bytes: number): Program.TensorProgram => {
  const arena = new Arena()
  const rows = bytes / 4 / row
  const x = buffer(arena, 0, { shape: [rows, row], dtype: DType.f32 })
  return Program.make([Program.assign(buffer(arena, 1, { shape: [rows], dtype: DType.f32 }), x.sum(1))])
}

/** Measures the device at hand. Everything it allocates is given back. */
export const measure = Effect.fn("Measure.measure")(function*({ repeats = 5, sizes }: Options = {}) {
  const device = yield* Device
  const jit = yield* Jit
  const { profile } = device

  /** The least over repeated measurements of one run of a program. */
  const timed = Effect.fnUntraced(function*(program: Program.TensorProgram, bytes: readonly [number, number]) {
    const buffers = yield* Effect.forEach(bytes, (size, i) => device.allocate(size, `measured ${i}`))
    const prepared = yield* jit.prepare(program.sink, new Map(buffers.map((b, i) => [i, b] as const)))
    yield* Profiler.backToBack(prepared, {}, 1)
    const once = (yield* Profiler.backToBack(prepared, {}, 2)).micros
    const runs = Math.min(mostRuns, Math.max(2, Math.ceil(leastMicros / once)))
    const all = yield* Effect.replicateEffect(Profiler.backToBack(prepared, {}, runs), repeats)
    return {
      // what else happens on a machine only makes it slower
      micros: Math.min(...all.map((a) => a.micros)),
      encodeMicros: Math.min(...all.map((a) => a.encodeMicros)),
      launches: prepared.dispatches.length
    }
  }, Effect.scoped)

  const short = yield* timed(chain(few), [256, 256])
  const long = yield* timed(chain(many), [256, 256])
  const more = long.launches - short.launches
  const dispatchMicros = Math.max(0, (long.micros - short.micros) / more)
  const encodeMicros = Math.max(0, (long.encodeMicros - short.encodeMicros) / more)

  const room = Math.min(profile.maxBindingBytes, profile.maxBufferBytes, (profile.memoryBytes ?? Infinity) / 2)
  const readings: Array<Reading> = []
  for (const bytes of (sizes ?? wholeSizes[profile.kind]).filter((size) => size <= room)) {
    const { micros } = yield* timed(reading(bytes), [bytes, bytes / row])
    readings.push({ bytes, micros, bytesPerMicro: bytes / Math.max(micros - dispatchMicros, micros / 10) })
  }
  // small ones stay in caches
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
