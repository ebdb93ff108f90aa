/** A GGUF file: what its header says, and where its tensors are. */
import { Effect, Result } from "effect"
import { type ByteSource, ByteSourceError } from "./ByteSource.ts"
import { type GgufError, MissingTensor } from "./GgufError.ts"
import type { Name } from "./GgufType.ts"
import { parse } from "./internal/parse.ts"
import type { MetadataValue } from "./Metadata.ts"

/** One entry of the tensor table. */
export interface TensorInfo {
  readonly name: string
  readonly type: Name
  /** In file order: the first dimension varies fastest and is the length of a row. */
  readonly dims: ReadonlyArray<number>
  /** From the start of the file; a multiple of the alignment whenever `dataOffset` is. */
  readonly offset: number
  readonly bytes: number
}

/** The header of a file. Every tensor lies inside the file and no two overlap. */
export interface Gguf {
  /** The name of the source, for errors. */
  readonly name: string
  readonly size: number
  readonly version: number
  readonly alignment: number
  /** In file order. */
  readonly metadata: ReadonlyMap<string, MetadataValue>
  /** In file order. */
  readonly tensors: ReadonlyArray<TensorInfo>
  readonly tensorsByName: ReadonlyMap<string, TensorInfo>
  /** Where tensor data starts; in a file without tensors it may lie behind the end. */
  readonly dataOffset: number
}

/** How to read. */
export interface ReadOptions {
  /** Bytes of a read; 1 MiB by default. */
  readonly chunkBytes?: number
  /** Larger headers are refused before allocating for them; 64 MiB by default, and real files have 5 to 20 MB. */
  readonly maxHeaderBytes?: number
}

const limits = (options: ReadOptions) => ({
  chunkBytes: Math.max(1, options.chunkBytes ?? 2 ** 20),
  maxHeaderBytes: options.maxHeaderBytes ?? 2 ** 26
})

/** Reads the header of a file, chunk by chunk; the tensor data is not touched. */
export const read: (
  source: ByteSource["Service"],
  options?: ReadOptions
) => Effect.Effect<Gguf, GgufError | ByteSourceError> = Effect.fn("Gguf.read")(function*(source, options = {}) {
  const parser = parse(source.name, source.size, limits(options))
  let step = parser.next()
  while (!step.done) {
    if (step.value._tag !== "Need") return yield* step.value
    const { length, offset } = step.value
    const bytes = yield* source.read(offset, length)
    if (bytes.length !== length) return yield* wrongLength(source.name, offset, length, bytes.length)
    step = parser.next(bytes)
  }
  return step.value
})

/** Reads the header of a file that is in memory. */
export const fromBytes = (
  name: string,
  bytes: Uint8Array,
  options: ReadOptions = {}
): Result.Result<Gguf, GgufError> => {
  const parser = parse(name, bytes.length, limits(options))
  let step = parser.next()
  while (!step.done) {
    if (step.value._tag !== "Need") return Result.fail(step.value)
    step = parser.next(bytes.subarray(step.value.offset, step.value.offset + step.value.length))
  }
  return Result.succeed(step.value)
}

/** The tensor of a name. */
export const getTensor = (gguf: Gguf, name: string): Result.Result<TensorInfo, MissingTensor> => {
  const tensor = gguf.tensorsByName.get(name)
  return tensor === undefined
    ? Result.fail(new MissingTensor({ file: gguf.name, tensor: name }))
    : Result.succeed(tensor)
}

/** All bytes of a tensor at once; a large one is better read in ranges of `tensor.offset`. */
export const readTensor = (
  source: ByteSource["Service"],
  tensor: TensorInfo
): Effect.Effect<Uint8Array, ByteSourceError> => source.read(tensor.offset, tensor.bytes)

const wrongLength = (source: string, offset: number, length: number, found: number): ByteSourceError =>
  new ByteSourceError({
    source,
    offset,
    length,
    problem: "short-read",
    detail: `the source answered with ${found} bytes; it breaks its contract`
  })
