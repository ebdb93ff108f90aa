import type { Copy, DeviceBuffer, DeviceError } from "@tg/runtime/Device"
import { Effect } from "effect"
import * as Allocation from "./allocation.ts"
import { checkRange, Memory, type Own } from "./memory.ts"
import { error, type Gpu } from "./queue.ts"
import * as Reads from "./reads.ts"
import * as Writes from "./writes.ts"

/** Storage of one device: allocation, writing, reading and copying. */
export interface Storage extends Allocation.Allocation {
  readonly write: (buffer: DeviceBuffer, data: Uint8Array, offset?: number) => Effect.Effect<void, DeviceError>
  readonly read: (buffer: DeviceBuffer, offset?: number, bytes?: number) => Effect.Effect<Uint8Array, DeviceError>
  readonly readWith: Reads.ReadWith
  readonly copy: (copies: ReadonlyArray<Copy>) => Effect.Effect<void, DeviceError>
}

/** `maxBufferBytes`: what one GPUBuffer may take, if less than the device allows. */
export const make = (gpu: Gpu, maxBufferBytes?: number): Storage => {
  const allocation = Allocation.make(gpu, maxBufferBytes)
  const readWith = Reads.make(gpu, allocation.own)
  return {
    ...allocation,
    write: Writes.make(gpu, allocation.own),
    read: Reads.alone(gpu, readWith),
    readWith,
    copy: (copies) => copyAll(gpu, allocation.own, copies)
  }
}

/** Copies in order, in one submission; nothing is copied if one of them is refused. */
const copyAll = (gpu: Gpu, own: Own, copies: ReadonlyArray<Copy>): Effect.Effect<void, DeviceError> =>
  Effect.suspend(() => {
    const encoder = gpu.device.createCommandEncoder()
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
    gpu.device.queue.submit([encoder.finish()])
    return Effect.void
  })
