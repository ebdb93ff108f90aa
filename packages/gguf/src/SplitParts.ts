/** The parts of a model in several files as one, and one as parts. */
import { Effect, Result } from "effect"
import { type ByteSource, checkRange } from "./ByteSource.ts"
import type { Gguf, TensorInfo } from "./Gguf.ts"
import { InvalidTensor, type WrongType } from "./GgufError.ts"
import { bytesOf } from "./GgufType.ts"
import type { GgufContents, TensorEntry } from "./GgufWriter.ts"
import { shown } from "./internal/window.ts"
import * as Metadata from "./Metadata.ts"
import { keys, partOf, SplitError } from "./SplitPart.ts"

/**
 * One header for all parts, given in their order: metadata of the first (without the keys of parts), tensors of all, at
 * their offsets in `concatenate`.
 */
export const merge = (parts: ReadonlyArray<Gguf>): Result.Result<Gguf, SplitError | WrongType> =>
  Result.gen(function*() {
    const [first] = parts
    const tensors: Array<TensorInfo> = []
    const owners = new Map<string, string>()
    let base = 0
    for (const [i, part] of parts.entries()) {
      const refuse = (problem: SplitError["problem"], detail: string) =>
        Result.fail(new SplitError({ file: part.name, problem, detail }))
      const own = yield* partOf(part)
      if (own?.count !== parts.length) {
        return yield* refuse(
          "count",
          `says it is one of ${own?.count ?? 1} parts, and the model has ${parts.length}; download it again`
        )
      }
      if (own.number !== i + 1) {
        return yield* refuse("number", `stands for part ${i + 1}, but says it is part ${own.number}; rename it`)
      }
      for (const tensor of part.tensors) {
        const owner = owners.get(tensor.name)
        if (owner !== undefined) {
          return yield* refuse(
            "duplicate-tensor",
            `has the tensor ${shown(tensor.name)}, and so has ${owner}; download them again`
          )
        }
        owners.set(tensor.name, part.name)
        tensors.push({ ...tensor, offset: base + tensor.offset })
      }
      base += part.size
    }
    const said = (yield* partOf(first!))!.tensors
    if (said !== undefined && said !== tensors.length) {
      return yield* Result.fail(
        new SplitError({
          file: first!.name,
          problem: "tensor-count",
          detail: `says that the parts have ${said} tensors, they have ${tensors.length}; download them again`
        })
      )
    }
    const own: ReadonlyArray<string> = Object.values(keys)
    return {
      ...first!,
      size: base,
      metadata: new Map([...first!.metadata].filter(([key]) => !own.includes(key))),
      tensors,
      tensorsByName: new Map(tensors.map((tensor) => [tensor.name, tensor]))
    }
  })

/** The bytes of all parts, one after the other. */
export const concatenate = (name: string, parts: ReadonlyArray<ByteSource["Service"]>): ByteSource["Service"] => {
  let size = 0
  const placed = parts.map((part) => {
    const start = size
    size += part.size
    return { part, start }
  })
  return {
    name,
    size,
    read: Effect.fnUntraced(function*(offset, length) {
      const error = checkRange({ name, size }, offset, length)
      if (error !== undefined) return yield* error
      const within = placed.find(({ part, start }) => offset >= start && offset + length <= start + part.size)
      if (within !== undefined) return yield* within.part.read(offset - within.start, length)
      const bytes = new Uint8Array(length)
      for (const { part, start } of placed) {
        const from = Math.max(offset, start)
        const to = Math.min(offset + length, start + part.size)
        if (from < to) bytes.set(yield* part.read(from - start, to - from), from - offset)
      }
      return bytes
    })
  }
}

/** What the writer needs to know of a file; with data or without. */
type Contents<T extends TensorEntry> = Omit<GgufContents, "tensors"> & { readonly tensors: ReadonlyArray<T> }

/** The same contents as `count` parts of about equal size, each to be written as a file of its own. */
export const divide = <T extends TensorEntry>(
  contents: Contents<T>,
  count: number
): Result.Result<ReadonlyArray<Contents<T>>, InvalidTensor> => {
  const { tensors } = contents
  const sizes: Array<number> = []
  for (const { dims, name, type } of tensors) {
    const bytes = bytesOf(type, dims)
    if (typeof bytes !== "number") {
      return Result.fail(new InvalidTensor({ file: contents.name ?? "new GGUF", tensor: name, ...bytes }))
    }
    sizes.push(bytes)
  }
  const total = sizes.reduce((a, b) => a + b, 0)
  let before = 0
  // a tensor belongs to the part that its middle falls into
  const owners = sizes.map((bytes) => {
    const middle = before + bytes / 2
    before += bytes
    return Math.min(count - 1, Math.floor(count * middle / total))
  })
  return Result.succeed(Array.from({ length: count }, (_, part) => ({
    ...contents,
    metadata: [
      ...(part === 0 ? contents.metadata : []),
      [keys.number, { type: "uint16", value: part }],
      [keys.count, { type: "uint16", value: count }],
      [keys.tensors, Metadata.int32(tensors.length)]
    ] as const,
    tensors: tensors.filter((_, i) => owners[i] === part)
  })))
}
