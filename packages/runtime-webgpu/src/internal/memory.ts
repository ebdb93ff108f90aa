import type { DeviceBuffer, DeviceError } from "@tg/runtime/Device"
import { error } from "./queue.ts"

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

/** A buffer as this device's own, or why it cannot be used. */
export type Own = (buffer: DeviceBuffer) => Memory | DeviceError

/** Why these bytes of a buffer cannot be written or read. */
export const checkRange = (verb: string, buffer: Memory, offset: number, bytes: number): DeviceError | undefined => {
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
