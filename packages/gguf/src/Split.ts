/**
 * A model in several files, `NAME-00001-of-00003.gguf` and so on. Every part is a GGUF file of its own with a share of
 * the tensors; the first one has the model's metadata too. Keys in each part say which it is: `split.no` (from 0),
 * `split.count`, and `split.tensors.count` (of all parts together).
 *
 * Seen through this module the parts are one file again: their bytes follow one another without gaps.
 */
import { Result } from "effect"
import type { Gguf } from "./Gguf.ts"
import type { WrongType } from "./GgufError.ts"
import * as Metadata from "./Metadata.ts"
import { keys, type Part, SplitError } from "./SplitPart.ts"

export { type Part, partOf, SplitError } from "./SplitPart.ts"
export { concatenate, divide, merge } from "./SplitParts.ts"

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
