import { type Copy, type DeviceBuffer, DeviceError } from "@tg/runtime/Device"
import { bad, copyAll } from "@tg/runtime/HostDevice"
import { lineBytes } from "./driver.ts"
import { Heap } from "./Heap.ts"

export const pageBytes = 65536
export const maxPages = 65536

/** Part of the memory. */
export class WasmBuffer implements DeviceBuffer {
  readonly label: string
  readonly bytes: number
  readonly offset: number
  readonly memory: WebAssembly.Memory
  live = true

  constructor(label: string, bytes: number, offset: number, memory: WebAssembly.Memory) {
    this.label = label
    this.bytes = bytes
    this.offset = offset
    this.memory = memory
  }
}

/** The memory of one device, in buffers: plain and synchronous. Methods return errors as values. */
export class WasmMemory {
  readonly memory: WebAssembly.Memory
  readonly maxBytes: number
  allocated = 0
  /** Counts releases: a plan checks its buffers again only after one. */
  releases = 0
  private readonly heap = new Heap()
  /** Bytes from here on were never handed out, so they are still zero. */
  private untouched = 0
  /** Where the table and the image of steps are, behind a table of so many gates. */
  tableAt = 0
  imageAt = 0
  private gates = 0
  private imageBytes = 0
  constructor(memory: WebAssembly.Memory, maxBytes: number) {
    this.memory = memory
    this.maxBytes = maxBytes
  }

  allocate(requested: number, label: string): WasmBuffer | DeviceError {
    if (!Number.isInteger(requested) || requested < 0) {
      return bad(`${label}: ${requested} is not a number of bytes`)
    }
    const bytes = Math.ceil(requested / 4) * 4
    const offset = this.take(bytes, label)
    if (offset instanceof DeviceError) return offset
    this.allocated += bytes
    return new WasmBuffer(label, bytes, offset, this.memory)
  }

  /**
   * Sees to it that steps of so many phases have room, and their images. The memory is the device's own, and never given back: a late
   * thread may look at a gate long after its step, so a gate has to stay one.
   */
  reserve(phases: number, imageBytes: number): DeviceError | undefined {
    if (phases <= this.gates && imageBytes <= this.imageBytes) return undefined
    const gates = Math.max(phases, this.gates)
    const room = Math.max(imageBytes, this.imageBytes)
    const tableBytes = (2 + gates) * lineBytes
    const offset = this.take(tableBytes + room, "launches of a plan")
    if (offset instanceof DeviceError) return offset
    this.tableAt = Math.ceil(offset / lineBytes) * lineBytes
    this.imageAt = this.tableAt + (1 + gates) * lineBytes
    this.gates = gates
    this.imageBytes = room
    return undefined
  }

  /** Zeroed bytes. */
  private take(bytes: number, label: string): number | DeviceError {
    const offset = this.heap.allocate(bytes, this.maxBytes)
    if (offset === undefined) return this.outOfMemory(label, bytes, `the device may use ${this.maxBytes}`)
    const missing = this.heap.end - this.memory.buffer.byteLength
    if (missing > 0) {
      const refusal = this.grow(missing)
      if (refusal !== undefined) {
        this.heap.release(offset, bytes)
        return this.outOfMemory(
          label,
          bytes,
          `the host refuses more than ${this.memory.buffer.byteLength} (${refusal})`
        )
      }
    }
    const dirty = Math.min(offset + bytes, this.untouched)
    if (dirty > offset) new Uint8Array(this.memory.buffer, offset, dirty - offset).fill(0)
    this.untouched = Math.max(this.untouched, this.heap.end)
    return offset
  }

  /** Grows by some more than asked, so that there are few growths, or by just that much if the host refuses. */
  private grow(missing: number): string | undefined {
    const size = this.memory.buffer.byteLength
    const generous = Math.min(Math.max(missing, Math.min(size, 2 ** 28)), this.maxBytes - size)
    let refusal = ""
    for (const bytes of [generous, missing]) {
      try {
        this.memory.grow(Math.ceil(bytes / pageBytes))
        return undefined
      } catch (error) {
        refusal = String(error)
      }
    }
    return refusal
  }

  private outOfMemory(label: string, bytes: number, limit: string): DeviceError {
    return new DeviceError({
      reason: "OutOfMemory",
      message: `${label}: ${bytes} bytes asked, ${this.allocated} are in use, the largest free piece is ` +
        `${this.heap.largestFree}, and ${limit}; ` +
        (this.maxBytes < maxPages * pageBytes
          ? "free buffers, use a smaller context, or raise maxBytes (at most 4 GiB)"
          : "WebAssembly addresses no more: use a smaller context, a smaller model, or a GPU")
    })
  }

  release(buffer: WasmBuffer): void {
    if (!buffer.live) return
    buffer.live = false
    this.releases++
    this.allocated -= buffer.bytes
    this.heap.release(buffer.offset, buffer.bytes)
  }

  /** The buffer as this device's own, or why it is not usable. */
  own(buffer: DeviceBuffer): WasmBuffer | DeviceError {
    if (!(buffer instanceof WasmBuffer) || buffer.memory !== this.memory) {
      return bad(`${buffer.label} belongs to another device`)
    }
    return buffer.live
      ? buffer
      : bad(`${buffer.label} is used after its Scope closed; keep the Scope open as long as its users`)
  }

  /** Copies between buffers, one after the other; nothing if one of them cannot be made. */
  copy(copies: ReadonlyArray<Copy>): DeviceError | undefined {
    return copyAll(copies, (...part) => this.view(...part))
  }

  /** Part of a buffer. The view is for now only: growing the memory detaches it. */
  view(buffer: DeviceBuffer, offset: number, bytes: number): Uint8Array | DeviceError {
    const own = this.own(buffer)
    if (own instanceof DeviceError) return own
    if (!(offset >= 0 && bytes >= 0 && offset % 4 === 0 && bytes % 4 === 0)) {
      return bad(`${own.label}: offset ${offset} and length ${bytes} have to be multiples of 4`)
    }
    if (offset + bytes > own.bytes) {
      return bad(`${own.label}: bytes ${offset} to ${offset + bytes} asked, the buffer has ${own.bytes}`)
    }
    return new Uint8Array(this.memory.buffer, own.offset + offset, bytes)
  }
}
