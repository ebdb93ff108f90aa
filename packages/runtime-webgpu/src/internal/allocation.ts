/** Allocating storage buffers, and returning them. */
import { bindingAlignment } from "@tg/core-uop/DeviceLimits"
import type { DeviceError } from "@tg/runtime/Device"
import { Effect, type Scope } from "effect"
import { Memory, type Own } from "./memory.ts"
import { error, type Gpu, scoped, usage } from "./queue.ts"

/** The buffers of one device. */
export interface Allocation {
  readonly allocatedBytes: () => number
  /** Adds memory that others hold on the device to `allocatedBytes`. */
  readonly count: (bytes: number) => void
  readonly allocate: (bytes: number, label: string) => Effect.Effect<Memory, DeviceError, Scope.Scope>
  readonly own: Own
  /** Buffers that were returned so far, in number: as long as it stays the same, what was looked at is still there. */
  readonly returned: () => number
}

const roundUp = (x: number, multiple: number): number => Math.ceil(x / multiple) * multiple

const checkSize = (bytes: number, label: string): DeviceError | undefined =>
  !Number.isFinite(bytes) || bytes < 0 ? error("BadArgument", `allocate ${label}: ${bytes} bytes`) : undefined

/** Makes one GPUBuffer; `allocated` bytes are there before it. */
const createSegment = (
  gpu: Gpu,
  size: number,
  { allocated, label }: { readonly label: string; readonly allocated: number }
): Effect.Effect<GPUBuffer, DeviceError> =>
  Effect.gen(function*() {
    const made = yield* scoped(gpu, () =>
      gpu.device.createBuffer({ label, size, usage: usage.storage | usage.copySrc | usage.copyDst }))
    if (made.memory === undefined && made.validation === undefined) {
      return made.value
    }
    made.value.destroy()
    return made.memory !== undefined
      ? yield* error("OutOfMemory", `allocate ${label}: ${size} bytes, with ${allocated} allocated: ${made.memory}`)
      : yield* gpu.trouble() ?? error("BadArgument", `allocate ${label}: ${made.validation}`)
  })

/** `maxBufferBytes`: what one GPUBuffer may take, if less than the device allows. */
export const make = (gpu: Gpu, maxBufferBytes = Infinity): Allocation => {
  const largest = Math.min(gpu.device.limits.maxBufferSize, maxBufferBytes)
  const segmentBytes = largest - largest % bindingAlignment
  const owned = new WeakSet<Memory>()
  let allocated = 0
  let nextId = 0
  let returned = 0

  const create = (bytes: number, label: string): Effect.Effect<Memory, DeviceError> =>
    Effect.gen(function*() {
      const refused = gpu.trouble() ?? checkSize(bytes, label)
      if (refused !== undefined) return yield* refused
      const size = Math.max(16, roundUp(bytes, 16))
      const segments: Array<GPUBuffer> = []
      for (let at = 0; at < size; at += segmentBytes) {
        segments.push(
          yield* createSegment(gpu, Math.min(segmentBytes, size - at), { label, allocated }).pipe(
            Effect.tapError(() => Effect.sync(() => segments.forEach((segment) => segment.destroy())))
          )
        )
      }
      const memory = new Memory(label, Math.max(4, roundUp(bytes, 4)), segments, segmentBytes, nextId++)
      owned.add(memory)
      allocated += memory.bytes
      return memory
    })

  const release = (memory: Memory): Effect.Effect<void> =>
    Effect.sync(() => {
      memory.released = true
      returned++
      allocated -= memory.bytes
      for (const segment of memory.segments) segment.destroy()
    })

  return {
    allocatedBytes: () => allocated,
    returned: () => returned,
    count: (bytes) => {
      allocated += bytes
    },
    allocate: (bytes, label) => Effect.acquireRelease(create(bytes, label), release),
    own: (buffer) => {
      if (!(buffer instanceof Memory) || !owned.has(buffer)) {
        return error("BadArgument", `the buffer ${buffer.label} belongs to another device`)
      }
      return buffer.released
        ? error(
          "BadArgument",
          `the buffer ${buffer.label} was returned when its scope closed; allocate it in a longer one`
        )
        : buffer
    }
  }
}
