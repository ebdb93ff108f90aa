import type { DeviceError } from "@tg/runtime/Device"
import { Effect } from "effect"
import { error, type Gpu, mapRead, usage, wait } from "./queue.ts"

/** GPUBufferUsage.QUERY_RESOLVE. */
const queryResolve = 0x200
/** Two timestamps of 64 bits. */
const bytes = 16
const nanosPerMicro = 1000

/** What is timed: a pass with this descriptor, and commands behind it. */
export interface Around {
  readonly descriptor: GPUComputePassDescriptor
  readonly behind: (encoder: GPUCommandEncoder) => void
}

/** Microseconds between the start and the end of a compute pass on the device's own clock; `submit` encodes it. */
export const time = (
  gpu: Gpu,
  submit: (around: Around) => DeviceError | undefined
): Effect.Effect<number, DeviceError> => {
  const { device } = gpu
  const acquire = Effect.sync(() => ({
    querySet: device.createQuerySet({ type: "timestamp", count: 2 }),
    resolved: device.createBuffer({ size: bytes, usage: queryResolve | usage.copySrc }),
    staging: device.createBuffer({ size: bytes, usage: usage.mapRead | usage.copyDst })
  }))
  return Effect.acquireUseRelease(acquire, ({ querySet, resolved, staging }) =>
    Effect.gen(function*() {
      const refused = submit({
        descriptor: { timestampWrites: { querySet, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 } },
        behind: (encoder) => {
          encoder.resolveQuerySet(querySet, 0, 2, resolved, 0)
          encoder.copyBufferToBuffer(resolved, 0, staging, 0, bytes)
        }
      })
      if (refused !== undefined) return yield* refused
      yield* wait(gpu, () => staging.mapAsync(mapRead), (message) => error("DeviceLost", `timing: ${message}`))
      const [start, end] = new BigUint64Array(staging.getMappedRange().slice())
      staging.unmap()
      const trouble = gpu.trouble()
      if (trouble !== undefined) return yield* trouble
      return Number(end! - start!) / nanosPerMicro
    }), ({ querySet, resolved, staging }) =>
    Effect.sync(() => {
      querySet.destroy()
      resolved.destroy()
      staging.destroy()
    }))
}
