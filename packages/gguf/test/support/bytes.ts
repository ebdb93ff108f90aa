/** Bytes of GGUF files written by hand, so that they can be wrong in every way. */
const encoder = new TextEncoder()

export const join = (...parts: ReadonlyArray<Uint8Array>): Uint8Array<ArrayBuffer> => {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}

const little = (value: number | bigint, bytes: number): Uint8Array =>
  Uint8Array.from({ length: bytes }, (_, index) => Number(BigInt(value) >> BigInt(8 * index) & 255n))

export const u8 = (value: number) => little(value, 1)
export const u32 = (value: number) => little(value, 4)
export const u64 = (value: number | bigint) => little(value, 8)
export const str = (text: string | Uint8Array): Uint8Array => {
  const bytes = typeof text === "string" ? encoder.encode(text) : text
  return join(u64(bytes.length), bytes)
}
export const zeros = (length: number) => new Uint8Array(length)

/** A key of a given value type; `value` is raw. */
export const key = (name: string, type: number, value: Uint8Array) => join(str(name), u32(type), value)

export interface Entry {
  readonly name: string
  readonly dims: ReadonlyArray<number | bigint>
  readonly rank?: number
  readonly type?: number
  readonly offset?: number | bigint
}

export const entry = ({ dims, name, offset = 0, rank = dims.length, type = 0 }: Entry) =>
  join(str(name), u32(rank), ...dims.map(u64), u32(type), u64(offset))

/** A version 3 file with the keys and tensors given, padded to 32 bytes, with `dataBytes` of data. */
export const file = (
  keys: ReadonlyArray<Uint8Array>,
  tensors: ReadonlyArray<Uint8Array> = [],
  options: { dataBytes?: number; version?: number; keyCount?: number | bigint; tensorCount?: number | bigint } = {}
): Uint8Array<ArrayBuffer> => {
  const header = join(
    encoder.encode("GGUF"),
    u32(options.version ?? 3),
    u64(options.tensorCount ?? tensors.length),
    u64(options.keyCount ?? keys.length),
    ...keys,
    ...tensors
  )
  if (tensors.length === 0) return header
  return join(header, zeros(-header.length & 31), zeros(options.dataBytes ?? 4096))
}
