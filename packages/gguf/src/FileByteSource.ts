/**
 * Byte sources over files. A module of its own, because `FileSystem` is an unstable part of Effect: nothing else in the
 * package depends on it.
 */
import { ByteSize, Effect, FileSystem, Layer, type PlatformError, type Scope } from "effect"
import { ByteSource, ByteSourceError, checkRange } from "./ByteSource.ts"

// One read call of the operating system moves less than 2^31 bytes.
const maxReadBytes = 2 ** 30

/** Opens a file until the scope closes. */
export const open: (
  path: string
) => Effect.Effect<ByteSource["Service"], ByteSourceError, FileSystem.FileSystem | Scope.Scope> = Effect.fn(
  "FileByteSource.open"
)(function*(path) {
  const fileSystem = yield* FileSystem.FileSystem
  const unavailable = (offset: number, length: number) => (cause: PlatformError.PlatformError) =>
    new ByteSourceError({ source: path, offset, length, problem: "unavailable", detail: cause.message })
  const opened = Effect.mapError(unavailable(0, 0))
  const file = yield* fileSystem.open(path, { flag: "r" }).pipe(opened)
  const source = { name: path, size: Number(ByteSize.toBigInt((yield* file.stat.pipe(opened)).size)) }
  return {
    ...source,
    read: Effect.fnUntraced(function*(offset, length) {
      const error = checkRange(source, offset, length)
      if (error !== undefined) return yield* error
      const bytes = yield* allocate(path, offset, length)
      let filled = 0
      while (filled < length) {
        const rest = bytes.subarray(filled, Math.min(length, filled + maxReadBytes))
        const count = yield* file.read(rest, { position: BigInt(offset + filled) }).pipe(
          Effect.mapError(unavailable(offset, length))
        )
        if (count === 0) return yield* shortRead(path, offset, length, filled)
        filled += count
      }
      return bytes
    })
  }
})

/** `ByteSource` over the file at `path`, open as long as the layer lives. */
export const layer = (path: string): Layer.Layer<ByteSource, ByteSourceError, FileSystem.FileSystem> =>
  Layer.effect(ByteSource, open(path))

const allocate = (source: string, offset: number, length: number): Effect.Effect<Uint8Array, ByteSourceError> =>
  Effect.try({
    try: () => new Uint8Array(length),
    catch: () =>
      new ByteSourceError({
        source,
        offset,
        length,
        problem: "unavailable",
        detail: "there is not enough memory; read it in pieces"
      })
  })

const shortRead = (source: string, offset: number, length: number, found: number): ByteSourceError =>
  new ByteSourceError({
    source,
    offset,
    length,
    problem: "short-read",
    detail: `the file ended after ${found} bytes; it changed after it was opened`
  })
