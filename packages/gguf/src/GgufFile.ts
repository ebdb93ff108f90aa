/**
 * Model files on a disk, in one piece or in several parts. Like `FileByteSource` not in the index, because it depends on
 * the unstable `FileSystem`.
 */
import { Effect, FileSystem, type Scope } from "effect"
import type { ByteSource, ByteSourceError } from "./ByteSource.ts"
import * as FileByteSource from "./FileByteSource.ts"
import type { Gguf, ReadOptions } from "./Gguf.ts"
import type { GgufError, WrongType } from "./GgufError.ts"
import { GgufReader } from "./GgufReader.ts"
import * as Split from "./Split.ts"

/** A file that is open, with its header. Offsets of tensors are those in `source`. */
export interface GgufFile {
  readonly source: ByteSource["Service"]
  readonly gguf: Gguf
}

/** Missing files after which the error stops counting. */
const manyAbsent = 32

/** Why a file cannot be opened. */
export type OpenError = GgufError | ByteSourceError | Split.SplitError | WrongType

/**
 * Opens a file until the scope closes and reads its header. A part of a split model, whichever, opens all of them: errors
 * and the header's `name` then name the part concerned, the first one for the whole.
 */
export const open: (
  path: string,
  options?: ReadOptions
) => Effect.Effect<GgufFile, OpenError, FileSystem.FileSystem | Scope.Scope> = Effect.fn("GgufFile.open")(
  function*(path, options = {}) {
    const { read } = yield* GgufReader
    const source = yield* FileByteSource.open(path)
    const gguf = yield* read(source, options)
    const part = yield* Effect.fromResult(Split.partOf(gguf))
    if (part === undefined) return { source, gguf }
    const paths = yield* Effect.fromResult(Split.fileNames(path, part))
    const files = yield* FileSystem.FileSystem
    // for the error alone: opening a missing file fails below all the same
    const absent: Array<string> = []
    for (const name of paths) {
      if (!(yield* Effect.orElseSucceed(files.exists(name), () => true))) absent.push(name)
      // the count is from the header, and may be damaged
      if (absent.length >= manyAbsent) break
    }
    if (absent.length > 0) return yield* Split.missing(absent, part.count)
    const parts = yield* Effect.forEach(paths, (name) =>
      name === path
        ? Effect.succeed({ source, gguf })
        : Effect.flatMap(FileByteSource.open(name), (other) =>
          Effect.map(read(other, options), (header) => ({ source: other, gguf: header }))))
    return {
      source: Split.concatenate(paths[0]!, parts.map((each) => each.source)),
      gguf: yield* Effect.fromResult(Split.merge(parts.map((each) => each.gguf)))
    }
  }
)
