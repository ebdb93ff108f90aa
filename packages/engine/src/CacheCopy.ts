/** Rows of caches: from one set of buffers to another on the device, and out of it and back. A token has a row in each buffer. */
import type { DeviceBuffer, DeviceError, DeviceShape } from "@tg/runtime/Device"
import { Effect } from "effect"

/** How many bytes of each buffer: its first rows. */
export type Rows = ReadonlyArray<number>

const isNothing = (rows: Rows): boolean => rows.every((bytes) => bytes === 0)

/** Copies rows of each buffer of `from` to its counterpart. */
export const copyRows = (
  device: Pick<DeviceShape, "copy">,
  { from, to }: { readonly from: ReadonlyArray<DeviceBuffer>; readonly to: ReadonlyArray<DeviceBuffer> },
  rows: Rows
): Effect.Effect<void, DeviceError> =>
  isNothing(rows) ? Effect.void : device.copy(
    from.map((source, i) => ({
      from: source,
      fromOffset: 0,
      to: to[i]!,
      toOffset: 0,
      bytes: rows[i]!
    }))
  )

/** Reads rows, buffer by buffer. */
export const readRows = (
  device: Pick<DeviceShape, "read">,
  from: ReadonlyArray<DeviceBuffer>,
  rows: Rows
): Effect.Effect<ReadonlyArray<Uint8Array>, DeviceError> =>
  isNothing(rows)
    ? Effect.succeed(from.map(() => new Uint8Array(0)))
    : Effect.forEach(from, (buffer, i) => device.read(buffer, 0, rows[i]!))

/** Writes what `readRows` has read, or the beginning of it. */
export const writeRows = (
  device: Pick<DeviceShape, "write">,
  { from, to }: { readonly from: ReadonlyArray<Uint8Array>; readonly to: ReadonlyArray<DeviceBuffer> },
  rows: Rows
): Effect.Effect<void, DeviceError> =>
  isNothing(rows) ? Effect.void : Effect.forEach(
    from,
    (bytes, i) => device.write(to[i]!, bytes.subarray(0, rows[i]!)),
    { discard: true }
  )
