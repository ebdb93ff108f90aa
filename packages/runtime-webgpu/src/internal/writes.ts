/** Writing buffers through the queue. */
import type { DeviceBuffer, DeviceError } from "@tg/runtime/Device"
import { Effect } from "effect"
import { checkRange, Memory, type Own } from "./memory.ts"
import { error, type Gpu, wait } from "./queue.ts"

/** Writes larger than this go in pieces: the queue keeps a copy of every piece until the GPU has taken it. */
const pieceBytes = 32 * 2 ** 20
/** The queue may hold this many times so many bytes before a write waits for the GPU to take the oldest of them. */
const queuedParts = 4
const partBytes = 64 * 2 ** 20

/** Writes bytes to a buffer of the device. */
export const make = (gpu: Gpu, own: Own) => {
  const { queue } = gpu.device
  /** Bytes written since the last part, and the parts that the GPU may not have taken yet. */
  let queued = 0
  const parts: Array<Promise<undefined>> = []

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

  return (buffer: DeviceBuffer, data: Uint8Array, offset = 0): Effect.Effect<void, DeviceError> =>
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
}
