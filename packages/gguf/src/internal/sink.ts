/** A growing little-endian byte buffer. */
export interface Sink {
  bytes: Uint8Array<ArrayBuffer>
  view: DataView
  at: number
}

export const make = (): Sink => {
  const bytes = new Uint8Array(4096)
  return { bytes, view: new DataView(bytes.buffer), at: 0 }
}

/** Makes room and returns where it starts. */
export const take = (sink: Sink, length: number): number => {
  const at = sink.at
  if (at + length > sink.bytes.length) {
    const bytes = new Uint8Array(Math.max(at + length, sink.bytes.length * 2))
    bytes.set(sink.bytes.subarray(0, at))
    sink.bytes = bytes
    sink.view = new DataView(bytes.buffer)
  }
  sink.at = at + length
  return at
}

export const u32 = (sink: Sink, value: number): void => {
  const at = take(sink, 4)
  sink.view.setUint32(at, value, true)
}

export const u64 = (sink: Sink, value: number | bigint): void => {
  const at = take(sink, 8)
  sink.view.setBigUint64(at, BigInt(value), true)
}

export const raw = (sink: Sink, bytes: Uint8Array): void => {
  const at = take(sink, bytes.length)
  sink.bytes.set(bytes, at)
}

const encoder = new TextEncoder()

/** The length, then the text; every UTF-16 unit takes at most three bytes of UTF-8. */
export const string = (sink: Sink, text: string): void => {
  const start = take(sink, 8 + text.length * 3)
  const { written } = encoder.encodeInto(text, sink.bytes.subarray(start + 8))
  sink.view.setBigUint64(start, BigInt(written), true)
  sink.at = start + 8 + written
}
