import type { DeviceError } from "@tg/runtime/Device"
import { Effect } from "effect"
import { error, type Gpu, mapRead, usage, wait } from "./queue.ts"

/** GPUBufferUsage.QUERY_RESOLVE. */
const queryResolve = 0x200
/** Two timestamps of 64 bits. */
const passBytes = 16
/** A query set has room for 4096 timestamps. */
const setPasses = 2048
const nanosPerMicro = 1000

/** What passes need so that the device times them. */
export interface Timer {
  readonly passes: number
  readonly descriptor: (pass: number) => GPUComputePassDescriptor
  /** Adds the commands behind the passes that make their times readable. */
  readonly resolve: (encoder: GPUCommandEncoder) => void
}

/** Microseconds between the start and the end of each compute pass on the device's own clock; `submit` encodes them. */
export const time = (
  gpu: Gpu,
  passes: number,
  submit: (timer: Timer) => DeviceError | undefined
): Effect.Effect<ReadonlyArray<number>, DeviceError> => {
  const { device } = gpu
  const bytes = passBytes * passes
  const acquire = Effect.sync(() => ({
    sets: Array.from(
      { length: Math.ceil(passes / setPasses) },
      (_, set) => device.createQuerySet({ type: "timestamp", count: 2 * Math.min(setPasses, passes - set * setPasses) })
    ),
    resolved: device.createBuffer({ size: bytes, usage: queryResolve | usage.copySrc }),
    staging: device.createBuffer({ size: bytes, usage: usage.mapRead | usage.copyDst })
  }))
  return Effect.acquireUseRelease(acquire, ({ resolved, sets, staging }) =>
    Effect.gen(function*() {
      const refused = submit({
        passes,
        descriptor: (pass) => {
          const first = 2 * (pass % setPasses)
          const querySet = sets[Math.floor(pass / setPasses)]!
          return { timestampWrites: { querySet, beginningOfPassWriteIndex: first, endOfPassWriteIndex: first + 1 } }
        },
        resolve: (encoder) => {
          for (const [i, set] of sets.entries()) {
            encoder.resolveQuerySet(set, 0, set.count, resolved, passBytes * setPasses * i)
          }
          encoder.copyBufferToBuffer(resolved, 0, staging, 0, bytes)
        }
      })
      if (refused !== undefined) return yield* refused
      yield* wait(gpu, () => staging.mapAsync(mapRead), (message) => error("DeviceLost", `timing: ${message}`))
      const stamps = new BigUint64Array(staging.getMappedRange().slice())
      staging.unmap()
      const trouble = gpu.trouble()
      if (trouble !== undefined) return yield* trouble
      return Array.from({ length: passes }, (_, i) => Number(stamps[2 * i + 1]! - stamps[2 * i]!) / nanosPerMicro)
    }), ({ resolved, sets, staging }) =>
    Effect.sync(() => {
      for (const set of sets) set.destroy()
      resolved.destroy()
      staging.destroy()
    }))
}
