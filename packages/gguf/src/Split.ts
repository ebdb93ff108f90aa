/**
 * A model in several files, `NAME-00001-of-00003.gguf` and so on. Every part is a GGUF file of its own with a share of
 * the tensors; the first one has the model's metadata too. Keys in each part say which it is: `split.no` (from 0),
 * `split.count`, and `split.tensors.count` (of all parts together).
 *
 * Seen through this module the parts are one file again: their bytes follow one another without gaps.
 */
import { Effect, Result, Schema } from "effect"
import { type ByteSource, checkRange } from "./ByteSource.ts"
import type { Gguf, TensorInfo } from "./Gguf.ts"
import { InvalidTensor, type WrongType } from "./GgufError.ts"
import { bytesOf } from "./GgufType.ts"
import type { GgufContents, TensorEntry } from "./GgufWriter.ts"
import { shown } from "./internal/window.ts"
import * as Metadata from "./Metadata.ts"

/** Parts that do not make up a model. */
export class SplitError extends Schema.TaggedError<SplitError>()("SplitError", {
  /** The part at fault. */
  file: Schema.String,
  problem: Schema.Literals([
    /** One part was given where the whole model is needed. */
    "single-part",
    /** The file is a part, but its name does not tell how the others are called. */
    "name",
    /** Files that the name promises are not there. */
    "missing-part",
    /** The part says that it is another one. */
    "number",
    /** The parts disagree on how many they are. */
    "count",
    /** The parts have more or fewer tensors than they say. */
    "tensor-count",
    /** Two parts have a tensor of the same name. */
    "duplicate-tensor"
  ]),
  detail: Schema.String
}) {
  override get message(): string {
    return `${this.file}: ${this.detail} (${this.problem})`
  }
}

const keys = { number: "split.no", count: "split.count", tensors: "split.tensors.count" } as const

/** A part's own keys. */
export interface Part {
  /** From 1, as in its file name. */
  readonly number: number
  readonly count: number
  /** Tensors of all parts, if it says so. */
  readonly tensors: number | undefined
}

/** Which part a file is; nothing if it is whole. */
export const partOf = (gguf: Metadata.HasMetadata): Result.Result<Part | undefined, WrongType> =>
  Result.gen(function*() {
    const count = yield* Metadata.withDefault(Metadata.getUint32(gguf, keys.count), 1)
    if (count <= 1) return undefined
    const number = yield* Metadata.withDefault(Metadata.getUint32(gguf, keys.number), 0)
    return { number: number + 1, count, tensors: yield* Metadata.optional(Metadata.getUint32(gguf, keys.tensors)) }
  })

/** Refuses a file that is whole by `partOf`, and incomplete by its other keys. */
export const checkWhole = (gguf: Gguf): Result.Result<void, SplitError | WrongType> =>
  Result.gen(function*() {
    const refuse = (problem: SplitError["problem"], detail: string) =>
      Result.fail(new SplitError({ file: gguf.name, problem, detail: `${detail}; download it again` }))
    const number = yield* Metadata.withDefault(Metadata.getUint32(gguf, keys.number), 0)
    if (number > 0) return yield* refuse("number", `says it is part ${number + 1} of a model with no other parts`)
    const said = yield* Metadata.optional(Metadata.getUint32(gguf, keys.tensors))
    if (said !== undefined && said !== gguf.tensors.length) {
      return yield* refuse("tensor-count", `says that it has ${said} tensors, it has ${gguf.tensors.length}`)
    }
  })

const pattern = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/s

/** The name of a part's file. */
export const fileName = (stem: string, { count, number }: Pick<Part, "number" | "count">): string =>
  `${stem}-${digits(number)}-of-${digits(count)}.gguf`

const digits = (n: number): string => String(n).padStart(5, "0")

/** What a file name says: the stem that all parts share, and which part it is. Nothing if it is not a part's name. */
export const parseFileName = (
  path: string
): ({ readonly stem: string } & Pick<Part, "number" | "count">) | undefined => {
  const found = pattern.exec(path)
  return found === null ? undefined : { stem: found[1]!, number: Number(found[2]), count: Number(found[3]) }
}

/** The files of all parts, of which one was opened. */
export const fileNames = (path: string, part: Part): Result.Result<ReadonlyArray<string>, SplitError> => {
  const name = parseFileName(path)
  const refuse = (problem: SplitError["problem"], detail: string) =>
    Result.fail(new SplitError({ file: path, problem, detail }))
  if (part.number > part.count) {
    return refuse("number", `says it is part ${part.number} of ${part.count}; download it again`)
  }
  if (name === undefined) {
    return refuse(
      "name",
      `is part ${part.number} of ${part.count}, and its name does not tell where the others are; name the parts ` +
        `${fileName("NAME", part)} and so on`
    )
  }
  if (name.count !== part.count) {
    return refuse(
      "count",
      `is named one of ${name.count} parts, but says it is one of ${part.count}; download it again`
    )
  }
  if (name.number !== part.number) {
    return refuse("number", `is named part ${name.number}, but says it is part ${part.number}; rename it`)
  }
  return Result.succeed(
    Array.from({ length: part.count }, (_, i) => fileName(name.stem, { number: i + 1, count: part.count }))
  )
}

/** The error for a part where a whole model is needed. */
export const single = (file: string, { count, number }: Part): SplitError =>
  new SplitError({
    file,
    problem: "single-part",
    detail: `is part ${number} of ${count}; open all of them together (GgufFile.open does)`
  })

/** The error for parts that are not there. */
export const missing = (files: ReadonlyArray<string>, count: number): SplitError =>
  new SplitError({
    file: files[0]!,
    problem: "missing-part",
    detail: files.length === 1
      ? `is not there, and the model has ${count} parts; download it`
      : `is not there, like at least ${files.length - 1} more of the model's ${count} parts; download them`
  })

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
