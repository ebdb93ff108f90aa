import { bindingAlignment } from "@tg/core-uop/DeviceLimits"
import type { Copy, DeviceBuffer, DeviceError } from "@tg/runtime/Device"
import { Effect, type Scope } from "effect"
import { error, type Gpu, mapRead, scoped, usage, wait } from "./queue.ts"

/** A run of bytes inside of one GPUBuffer. */
export interface Piece {
  readonly gpu: GPUBuffer
  readonly offset: number
  readonly bytes: number
}

/**
 * A storage buffer on the GPU: one GPUBuffer, or as many as the limit on their size makes necessary, all but the last of
 * that size. Its true size is a multiple of 16, so that it can be bound as vectors of four.
 */
export class Memory implements DeviceBuffer {
  readonly label: string
  readonly bytes: number
  readonly segments: ReadonlyArray<GPUBuffer>
  readonly segmentBytes: number
  readonly id: number
  released = false
  constructor(label: string, bytes: number, segments: ReadonlyArray<GPUBuffer>, segmentBytes: number, id: number) {
    this.label = label
    this.bytes = bytes
    this.segments = segments
    this.segmentBytes = segmentBytes
    this.id = id
  }

  /** The GPUBuffers that hold these bytes, in order. */
  pieces(offset: number, bytes: number): ReadonlyArray<Piece> {
    const pieces: Array<Piece> = []
    for (let at = offset; at < offset + bytes;) {
      const segment = Math.floor(at / this.segmentBytes)
      const end = Math.min(offset + bytes, (segment + 1) * this.segmentBytes)
      pieces.push({ gpu: this.segments[segment]!, offset: at - segment * this.segmentBytes, bytes: end - at })
      at = end
    }
    return pieces
  }
}

/** Writes larger than this go in pieces: the queue keeps a copy of every piece until the GPU has taken it. */
const pieceBytes = 32 * 2 ** 20
/** The queue may hold this many times so many bytes before a write waits for the GPU to take the oldest of them. */
const queuedParts = 4
const partBytes = 64 * 2 ** 20
/** Staging buffers up to this size are kept for the next read. */
const keptBytes = 2 ** 20
const keptCount = 8

const roundUp = (x: number, multiple: number): number => Math.ceil(x / multiple) * multiple

/** Storage of one device: allocation, writing and reading. */
export interface Storage {
  readonly allocatedBytes: () => number
  /** Adds memory that others hold on the device to `allocatedBytes`. */
  readonly count: (bytes: number) => void
  readonly allocate: (bytes: number, label: string) => Effect.Effect<Memory, DeviceError, Scope.Scope>
  readonly write: (buffer: DeviceBuffer, data: Uint8Array, offset?: number) => Effect.Effect<void, DeviceError>
  readonly read: (buffer: DeviceBuffer, offset?: number, bytes?: number) => Effect.Effect<Uint8Array, DeviceError>
  readonly copy: (copies: ReadonlyArray<Copy>) => Effect.Effect<void, DeviceError>
  /** The buffer as this device's own, or why it cannot be used. */
  readonly own: (buffer: DeviceBuffer) => Memory | DeviceError
}

const checkRange = (verb: string, buffer: Memory, offset: number, bytes: number): DeviceError | undefined => {
  if (![offset, bytes].every((x) => Number.isInteger(x) && x >= 0 && x % 4 === 0)) {
    return error("BadArgument", `${verb} ${buffer.label}: offset ${offset} and length ${bytes} must be multiples of 4`)
  }
  return offset + bytes > buffer.bytes
    ? error(
      "BadArgument",
      `${verb} ${buffer.label}: bytes ${offset} to ${offset + bytes} of a buffer of ${buffer.bytes}`
    )
    : undefined
}

/** `maxBufferBytes`: what one GPUBuffer may take, if less than the device allows. */
export const make = (gpu: Gpu, maxBufferBytes = Infinity): Storage => {
  const { device } = gpu
  const largest = Math.min(device.limits.maxBufferSize, maxBufferBytes)
  const segmentBytes = largest - largest % bindingAlignment
  const { queue } = device
  const owned = new WeakSet<Memory>()
  const staging: Array<GPUBuffer> = []
  let allocated = 0
  let nextId = 0
  /** Bytes written since the last part, and the parts that the GPU may not have taken yet. */
  let queued = 0
  const parts: Array<Promise<undefined>> = []

  const own = (buffer: DeviceBuffer): Memory | DeviceError => {
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

  const checkSize = (bytes: number, label: string): DeviceError | undefined =>
    !Number.isFinite(bytes) || bytes < 0 ? error("BadArgument", `allocate ${label}: ${bytes} bytes`) : undefined

  const createSegment = (size: number, label: string): Effect.Effect<GPUBuffer, DeviceError> =>
    Effect.gen(function*() {
      const made = yield* scoped(gpu, () =>
        device.createBuffer({ label, size, usage: usage.storage | usage.copySrc | usage.copyDst }))
      if (made.memory === undefined && made.validation === undefined) {
        return made.value
      }
      made.value.destroy()
      return made.memory !== undefined
        ? yield* error("OutOfMemory", `allocate ${label}: ${size} bytes, with ${allocated} allocated: ${made.memory}`)
        : yield* gpu.trouble() ?? error("BadArgument", `allocate ${label}: ${made.validation}`)
    })

  const create = (bytes: number, label: string): Effect.Effect<Memory, DeviceError> =>
    Effect.gen(function*() {
      const refused = gpu.trouble() ?? checkSize(bytes, label)
      if (refused !== undefined) return yield* refused
      const size = Math.max(16, roundUp(bytes, 16))
      const segments: Array<GPUBuffer> = []
      for (let at = 0; at < size; at += segmentBytes) {
        segments.push(
          yield* createSegment(Math.min(segmentBytes, size - at), label).pipe(
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
      allocated -= memory.bytes
      for (const segment of memory.segments) segment.destroy()
    })

  /** The queue holds a copy of what it has not sent: without this wait a model's weights would be there twice. */
  const makeRoom = Effect.suspend(() => {
    queue.submit([])
    const taken = queue.onSubmittedWorkDone()
    // whoever waits for it sees a failure; nobody may have to
    taken.catch(() => {})
    parts.push(taken)
    queued = 0
    const oldest = parts.length > queuedParts - 1 ? parts.shift() : undefined
    return oldest === undefined
      ? Effect.void
      : wait(gpu, () => oldest, (message) => error("DeviceLost", message))
  })

  const write = (buffer: DeviceBuffer, data: Uint8Array, offset = 0): Effect.Effect<void, DeviceError> =>
    Effect.gen(function*() {
      const memory = own(buffer)
      if (!(memory instanceof Memory)) return yield* memory
      const refused = gpu.trouble() ?? checkRange("write", memory, offset, data.byteLength)
      if (refused !== undefined) return yield* refused
      for (let at = 0; at < data.byteLength; at += pieceBytes) {
        const piece = data.subarray(at, at + pieceBytes)
        // a piece of shared memory is copied first: writeBuffer does not take it everywhere
        const bytes = piece.buffer instanceof ArrayBuffer ? piece as Uint8Array<ArrayBuffer> : new Uint8Array(piece)
        let written = 0
        for (const part of memory.pieces(offset + at, bytes.byteLength)) {
          queue.writeBuffer(part.gpu, part.offset, bytes, written, part.bytes)
          written += part.bytes
        }
        queued += bytes.byteLength
        if (queued >= partBytes) yield* makeRoom
      }
    })

  const takeStaging = (bytes: number): GPUBuffer => {
    const found = staging.findIndex((s) => s.size >= bytes)
    if (found >= 0) return staging.splice(found, 1)[0]!
    const size = bytes > keptBytes ? bytes : Math.max(256, 2 ** Math.ceil(Math.log2(bytes)))
    return device.createBuffer({ label: "staging", size, usage: usage.mapRead | usage.copyDst })
  }

  const returnStaging = (buffer: GPUBuffer): void => {
    if (buffer.size <= keptBytes && staging.length < keptCount && buffer.mapState === "unmapped") staging.push(buffer)
    else buffer.destroy() // also ends a mapping that an interrupted read left pending
  }

  const copyOut = (memory: Memory, offset: number, bytes: number): Effect.Effect<Uint8Array, DeviceError> =>
    Effect.acquireUseRelease(
      Effect.sync(() => takeStaging(bytes)),
      (target) =>
        Effect.gen(function*() {
          const encoder = device.createCommandEncoder()
          let read = 0
          for (const part of memory.pieces(offset, bytes)) {
            encoder.copyBufferToBuffer(part.gpu, part.offset, target, read, part.bytes)
            read += part.bytes
          }
          queue.submit([encoder.finish()])
          yield* wait(
            gpu,
            () => target.mapAsync(mapRead, 0, bytes),
            (message) => error("DeviceLost", `read ${memory.label}: ${message}`)
          )
          // a device that was lost meanwhile takes the mapping away
          const copy = yield* Effect.try({
            try: () => new Uint8Array(target.getMappedRange(0, bytes)).slice(),
            catch: (cause) => gpu.trouble() ?? error("DeviceLost", `read ${memory.label}: ${String(cause)}`)
          })
          target.unmap()
          const trouble = gpu.trouble()
          return trouble === undefined ? copy : yield* trouble
        }),
      (target) => Effect.sync(() => returnStaging(target))
    )

  const read = (
    buffer: DeviceBuffer,
    offset = 0,
    bytes = buffer.bytes - offset
  ): Effect.Effect<Uint8Array, DeviceError> =>
    Effect.suspend(() => {
      const memory = own(buffer)
      if (!(memory instanceof Memory)) return Effect.fail(memory)
      const refused = gpu.trouble() ?? checkRange("read", memory, offset, bytes)
      if (refused !== undefined) return Effect.fail(refused)
      return bytes === 0 ? Effect.succeed(new Uint8Array(0)) : copyOut(memory, offset, bytes)
    })

  const copy = (copies: ReadonlyArray<Copy>): Effect.Effect<void, DeviceError> =>
    Effect.suspend(() => {
      const encoder = device.createCommandEncoder()
      for (const { bytes, from, fromOffset, to, toOffset } of copies) {
        const [source, target] = [own(from), own(to)]
        if (!(source instanceof Memory)) return Effect.fail(source)
        if (!(target instanceof Memory)) return Effect.fail(target)
        if (source === target) {
          return Effect.fail(error("BadArgument", `${from.label} is copied to itself; use different buffers`))
        }
        const refused = gpu.trouble() ?? checkRange("copy from", source, fromOffset, bytes) ??
          checkRange("copy to", target, toOffset, bytes)
        if (refused !== undefined) return Effect.fail(refused)
        let copied = 0
        for (const part of source.pieces(fromOffset, bytes)) {
          let read = 0
          for (const { gpu: into, bytes: length, offset } of target.pieces(toOffset + copied, part.bytes)) {
            encoder.copyBufferToBuffer(part.gpu, part.offset + read, into, offset, length)
            read += length
          }
          copied += part.bytes
        }
      }
      queue.submit([encoder.finish()])
      return Effect.void
    })

  return {
    allocatedBytes: () => allocated,
    count: (bytes) => {
      allocated += bytes
    },
    allocate: (bytes, label) => Effect.acquireRelease(create(bytes, label), release),
    write,
    read,
    copy,
    own
  }
}
