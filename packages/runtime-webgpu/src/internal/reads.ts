/** Reading buffers, through staging buffers that the host may map. */
import { type DeviceBuffer, DeviceError, type Span } from "@tg/runtime/Device"
import { Effect } from "effect"
import { checkRange, Memory, type Own } from "./memory.ts"
import { error, type Gpu, mapRead, usage, words } from "./queue.ts"

/** Staging buffers up to this size are kept for the next read. */
const keptBytes = 2 ** 20
const keptCount = 8

/** A buffer that the host may map. Its size is known here: to ask the buffer for it is a call into the device. */
interface Target {
  readonly gpu: GPUBuffer
  readonly bytes: number
}

/** Staging buffers, the small ones of which are kept. */
const stagingOf = (device: GPUDevice) => {
  const kept: Array<Target> = []
  return {
    take: (asked: number): Target => {
      const found = kept.findIndex(({ bytes }) => bytes >= asked)
      if (found >= 0) return kept.splice(found, 1)[0]!
      const bytes = asked > keptBytes ? asked : Math.max(256, 2 ** Math.ceil(Math.log2(asked)))
      const gpu = device.createBuffer({ label: "staging", size: bytes, usage: usage.mapRead | usage.copyDst })
      return { gpu, bytes }
    },
    giveBack: (target: Target): void => {
      const { bytes, gpu } = target
      if (bytes <= keptBytes && kept.length < keptCount && gpu.mapState === "unmapped") kept.push(target)
      else gpu.destroy() // also ends a mapping that an interrupted read left pending
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

  /** What lies in the mapped buffer, which is unmapped. */
  const taken = (parts: ReadonlyArray<Part>, total: number, target: GPUBuffer): ReadonlyArray<Uint8Array> => {
    const copy = new Uint8Array(target.getMappedRange(0, total)).slice()
    target.unmap()
    return parts.length === 1 ? [copy] : parts.map(({ at, bytes }) => copy.subarray(at, at + bytes))
  }

  /** What was read, when it is there. */
  const mapped = async (
    parts: ReadonlyArray<Part>,
    total: number,
    target: GPUBuffer
  ): Promise<ReadonlyArray<Uint8Array> | DeviceError> => {
    try {
      await target.mapAsync(mapRead, 0, total)
      // a device that was lost meanwhile takes the mapping away
      const found = taken(parts, total, target)
      return gpu.trouble() ?? found
    } catch (cause) {
      return gpu.trouble() ?? error("DeviceLost", `read ${labels(parts)}: ${words(cause)}`)
    }
  }

  /** The fiber waits once: each token is read so. */
  const readAll = (parts: ReadonlyArray<Part>, total: number, submit: Submit) =>
    Effect.callback<ReadonlyArray<Uint8Array>, DeviceError>((resume) => {
      const target = staging.take(total)
      const refused = submit(parts.map((part) => copyOut(part, target.gpu)))
      if (refused !== undefined) {
        staging.giveBack(target)
        resume(Effect.fail(refused))
        return undefined
      }
      const { submitted } = gpu.progress
      let isOver = false
      const end = (): void => {
        isOver = true
        staging.giveBack(target)
      }
      void mapped(parts, total, target.gpu).then((found) => {
        // who was interrupted has given it back
        if (isOver) return
        end()
        if (found instanceof DeviceError) return resume(Effect.fail(found))
        gpu.progress.done = Math.max(gpu.progress.done, submitted)
        resume(Effect.succeed(found))
      })
      return Effect.sync(end)
    })

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
