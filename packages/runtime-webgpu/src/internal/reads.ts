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

/** Puts a copy into a command buffer. */
export type CopyOut = (encoder: GPUCommandEncoder) => void

/** Submits commands with a copy for each of what is read among them, or says why it submitted nothing. */
export type Submit = (copies: ReadonlyArray<CopyOut>) => DeviceError | undefined

/** Reads bytes of buffers, by copies that are submitted with other commands. */
export type ReadWith = (
  spans: ReadonlyArray<Span>,
  submit: Submit
) => Effect.Effect<ReadonlyArray<Uint8Array>, DeviceError>

/** What is read, and where it lies in the staging buffer. */
interface Part extends Span {
  readonly memory: Memory
  readonly at: number
}

const labels = (parts: ReadonlyArray<Part>): string => [...new Set(parts.map(({ memory }) => memory.label))].join(", ")

/** Reads bytes of buffers of the device. */
export const make = (gpu: Gpu, own: Own): ReadWith => {
  const { device } = gpu
  const staging = stagingOf(device)

  const copyOut = ({ at, bytes, memory, offset }: Part, target: GPUBuffer): CopyOut => (encoder) => {
    let read = at
    for (const part of memory.pieces(offset, bytes)) {
      encoder.copyBufferToBuffer(part.gpu, part.offset, target, read, part.bytes)
      read += part.bytes
    }
  }

  const mapped = (parts: ReadonlyArray<Part>, total: number, target: GPUBuffer) =>
    Effect.gen(function*() {
      yield* wait(
        gpu,
        () => target.mapAsync(mapRead, 0, total),
        (message) => error("DeviceLost", `read ${labels(parts)}: ${message}`)
      )
      // a device that was lost meanwhile takes the mapping away
      const copy = yield* Effect.try({
        try: () => new Uint8Array(target.getMappedRange(0, total)).slice(),
        catch: (cause) => gpu.trouble() ?? error("DeviceLost", `read ${labels(parts)}: ${String(cause)}`)
      })
      target.unmap()
      const trouble = gpu.trouble()
      if (trouble !== undefined) return yield* trouble
      return parts.length === 1 ? [copy] : parts.map(({ at, bytes }) => copy.slice(at, at + bytes))
    })

  const readAll = (parts: ReadonlyArray<Part>, total: number, submit: Submit) =>
    Effect.acquireUseRelease(
      Effect.sync(() => staging.take(total)),
      (target) =>
        Effect.suspend(() => {
          const refused = submit(parts.map((part) => copyOut(part, target)))
          if (refused !== undefined) return Effect.fail(refused)
          const { submitted } = gpu.progress
          return Effect.tap(mapped(parts, total, target), () =>
            Effect.sync(() => {
              gpu.progress.done = Math.max(gpu.progress.done, submitted)
            }))
        }),
      (target) => Effect.sync(() => staging.giveBack(target))
    )

  return (spans, submit) =>
    Effect.suspend((): Effect.Effect<ReadonlyArray<Uint8Array>, DeviceError> => {
      const parts: Array<Part> = []
      let total = 0
      for (const span of spans) {
        const memory = own(span.buffer)
        if (!(memory instanceof Memory)) return Effect.fail(memory)
        const refused = gpu.trouble() ?? checkRange("read", memory, span.offset, span.bytes)
        if (refused !== undefined) return Effect.fail(refused)
        parts.push({ ...span, memory, at: total })
        total += span.bytes
      }
      if (total > 0) return readAll(parts, total, submit)
      const unsubmitted = submit(parts.map(() => () => {}))
      return unsubmitted === undefined ? Effect.succeed(parts.map(() => new Uint8Array(0))) : Effect.fail(unsubmitted)
    })
}

/** Reads bytes of a buffer, by a copy alone. */
export const alone =
  ({ device }: Gpu, readWith: ReadWith) =>
  (buffer: DeviceBuffer, offset = 0, bytes = buffer.bytes - offset): Effect.Effect<Uint8Array, DeviceError> =>
    Effect.map(
      readWith([{ buffer, offset, bytes }], ([copy]) => {
        const encoder = device.createCommandEncoder()
        copy!(encoder)
        device.queue.submit([encoder.finish()])
        return undefined
      }),
      ([found]) => found!
    )
