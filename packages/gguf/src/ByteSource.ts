/** Random access to bytes that need not be in memory. */
import { Context, Effect, Layer, Schema } from "effect"

/** A range that could not be read. */
export class ByteSourceError extends Schema.TaggedError<ByteSourceError>()("ByteSourceError", {
  source: Schema.String,
  offset: Schema.Number,
  length: Schema.Number,
  problem: Schema.Literals([
    "out-of-range",
    "short-read",
    "unavailable",
    /** More came than was asked for. */
    "long-read",
    /** Another range came than was asked for. */
    "wrong-range",
    /** The source gives only all of its bytes. */
    "no-ranges",
    /** The source is no longer what it was when it was opened. */
    "changed"
  ]),
  detail: Schema.String
}) {
  override get message(): string {
    if (this.problem === "unavailable" && this.length === 0) {
      return `${this.source} cannot be opened: ${this.detail}; check the path and its permissions`
    }
    return `${this.source}: ${this.length} bytes at offset ${this.offset}: ${this.detail} (${this.problem})`
  }
}

/**
 * A named run of `size` bytes. `read` answers with exactly `length` bytes or fails; it may be called concurrently. The
 * answer may share memory with the source, so it must not be written to.
 */
export class ByteSource extends Context.Service<ByteSource, {
  readonly name: string
  readonly size: number
  readonly read: (offset: number, length: number) => Effect.Effect<Uint8Array, ByteSourceError>
}>()("@tg/gguf/ByteSource") {
  /** A source over bytes in memory. */
  static readonly layerBytes = (name: string, bytes: Uint8Array): Layer.Layer<ByteSource> =>
    Layer.succeed(ByteSource, fromBytes(name, bytes))
}

/** The error for a range that does not lie inside `size` bytes, or nothing. */
export const checkRange = (
  source: { readonly name: string; readonly size: number },
  offset: number,
  length: number
): ByteSourceError | undefined => {
  const isInside = Number.isSafeInteger(offset) && Number.isSafeInteger(length) && offset >= 0 && length >= 0 &&
    length <= source.size - offset
  return isInside ? undefined : new ByteSourceError({
    source: source.name,
    offset,
    length,
    problem: "out-of-range",
    detail: `the source has ${source.size} bytes; ask for a range inside`
  })
}

/** A source over bytes in memory; `read` answers with views, without copying. */
export const fromBytes = (name: string, bytes: Uint8Array): ByteSource["Service"] => {
  const source = { name, size: bytes.length }
  return {
    ...source,
    read: (offset, length) =>
      Effect.suspend(() => {
        const error = checkRange(source, offset, length)
        return error === undefined ? Effect.succeed(bytes.subarray(offset, offset + length)) : Effect.fail(error)
      })
  }
}
