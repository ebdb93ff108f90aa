/** Reading buffers, through staging buffers that the host may map. */
import type { DeviceBuffer, DeviceError, Span } from "@tg/runtime/Device"
import { Effect } from "effect"
import { checkRange, Memory, type Own } from "./memory.ts"
import { error, type Gpu, mapRead, usage, wait } from "./queue.ts"

/** Staging buffers up to this size are kept for the next read. */
const keptBytes = 2 ** 20
const keptCount = 8

/** Staging buffers, the small ones of which are kept. */
const stagingOf = (device: GPUDevice) => {
  const kept: Array<GPUBuffer> = []
  return {
    take: (bytes: number): GPUBuffer => {
      const found = kept.findIndex((s) => s.size >= bytes)
      if (found >= 0) return kept.splice(found, 1)[0]!
      const size = bytes > keptBytes ? bytes : Math.max(256, 2 ** Math.ceil(Math.log2(bytes)))
      return device.createBuffer({ label: "staging", size, usage: usage.mapRead | usage.copyDst })
    },
    giveBack: (buffer: GPUBuffer): void => {
      if (buffer.size <= keptBytes && kept.length < keptCount && buffer.mapState === "unmapped") kept.push(buffer)
      else buffer.destroy() // also ends a mapping that an interrupted read left pending
    }
  }
}

/** Submits commands, the given ones behind its own, or says why it submitted nothing. */
export type Submit = (copy: (encoder: GPUCommandEncoder) => void) => DeviceError | undefined

/** Reads bytes of a buffer, by a copy that is submitted with other commands. */
export type ReadBehind = (span: Span, submit: Submit) => Effect.Effect<Uint8Array, DeviceError>

/** Reads bytes of a buffer of the device. */
export const make = (gpu: Gpu, own: Own): ReadBehind => {
  const { device } = gpu
  const staging = stagingOf(device)

  const copyOut = (
    memory: Memory,
    { bytes, offset }: Span,
    submit: Submit
  ): Effect.Effect<Uint8Array, DeviceError> =>
    Effect.acquireUseRelease(
      Effect.sync(() => staging.take(bytes)),
      (target) =>
        Effect.gen(function*() {
          const refused = submit((encoder) => {
            let read = 0
            for (const part of memory.pieces(offset, bytes)) {
              encoder.copyBufferToBuffer(part.gpu, part.offset, target, read, part.bytes)
              read += part.bytes
            }
          })
          if (refused !== undefined) return yield* refused
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
      (target) => Effect.sync(() => staging.giveBack(target))
    )

  return (span, submit) =>
    Effect.suspend(() => {
      const memory = own(span.buffer)
      if (!(memory instanceof Memory)) return Effect.fail(memory)
      const refused = gpu.trouble() ?? checkRange("read", memory, span.offset, span.bytes)
      if (refused !== undefined) return Effect.fail(refused)
      if (span.bytes > 0) return copyOut(memory, span, submit)
      const unsubmitted = submit(() => {})
      return unsubmitted === undefined ? Effect.succeed(new Uint8Array(0)) : Effect.fail(unsubmitted)
    })
}

/** Reads bytes of a buffer, by a copy alone. */
export const alone =
  ({ device }: Gpu, readBehind: ReadBehind) =>
  (buffer: DeviceBuffer, offset = 0, bytes = buffer.bytes - offset): Effect.Effect<Uint8Array, DeviceError> =>
    readBehind({ buffer, offset, bytes }, (copy) => {
      const encoder = device.createCommandEncoder()
      copy(encoder)
      device.queue.submit([encoder.finish()])
      return undefined
    })
