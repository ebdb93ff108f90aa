import { Device, type DeviceBuffer } from "@tg/runtime/Device"
import { Effect } from "effect"

/** The bytes of an array. */
export const bytesOf = ({ buffer, byteLength, byteOffset }: ArrayBufferView): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)

/** Buffers of the device with these contents, by id. */
export const upload = Effect.fnUntraced(function*(contents: Iterable<readonly [number, ArrayBufferView]>) {
  const device = yield* Device
  const buffers = new Map<number, DeviceBuffer>()
  for (const [id, data] of contents) {
    const buffer = yield* device.allocate(data.byteLength, `buffer ${id}`)
    yield* device.write(buffer, bytesOf(data))
    buffers.set(id, buffer)
  }
  return buffers
})
