/** Which files of a repository make up a model. */
import * as Split from "@tg/gguf/Split"
import { Result, Schema } from "effect"

/** A file that a hub lists. */
export interface Listed {
  readonly path: string
}

/** A repository without the model that was asked for, or with several. */
export class NoSuchModel extends Schema.TaggedError<NoSuchModel>()("NoSuchModel", {
  name: Schema.String,
  detail: Schema.String
}) {
  override get message(): string {
    return `${this.name}: ${this.detail}`
  }
}

const quantisation = /(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|NVFP4|BF16|F16|F32|FP16|FP32))(?=[-._/]|$)/gi

/** The quantisation that a file's name tells: `Q4_K_M`. */
export const quantOf = (path: string): string | undefined => [...path.matchAll(quantisation)].at(-1)?.[1]?.toUpperCase()

const stemOf = (path: string): string => Split.parseFileName(path)?.stem ?? path.replace(/\.gguf$/i, "")

const isModel = ({ path }: Listed): boolean => /\.gguf$/i.test(path) && !/(^|\/)(mmproj|imatrix)/i.test(path)

/** Files that are one model, in the order of their parts, for each model. */
export const models = <F extends Listed>(files: ReadonlyArray<F>): ReadonlyMap<string, ReadonlyArray<F>> =>
  Map.groupBy(
    files.filter(isModel).toSorted((a, b) => a.path < b.path ? -1 : a.path > b.path ? 1 : 0),
    ({ path }) => {
      const part = Split.parseFileName(path)
      return part === undefined ? stemOf(path) : `${part.stem} in ${part.count}`
    }
  )

/** Whether a model is there whole. */
const checkParts = <F extends Listed>(
  name: string,
  files: ReadonlyArray<F>
): Result.Result<ReadonlyArray<F>, NoSuchModel> => {
  const part = Split.parseFileName(files[0]!.path)
  if (part === undefined) return Result.succeed(files)
  const wanted = Array.from(
    { length: part.count },
    (_, i) => Split.fileName(part.stem, { number: i + 1, count: part.count })
  )
  const missing = wanted.filter((path) => !files.some((file) => file.path === path))
  if (missing.length > 0) {
    return refuse(name, `the model has ${part.count} parts, and ${list(missing)} not there; ask who published it`)
  }
  return Result.succeed(wanted.map((path) => files.find((file) => file.path === path)!))
}

const list = (names: ReadonlyArray<string>): string =>
  names.length === 1 ? `${names[0]} is` : `${names.slice(0, 3).join(", ")}${names.length > 3 ? " and others" : ""} are`

/** The files of the model with this quantisation; without one, of the only model. */
export const byQuant = <F extends Listed>(
  name: string,
  files: ReadonlyArray<F>,
  quant: string | undefined
): Result.Result<ReadonlyArray<F>, NoSuchModel> => {
  const all = [...models(files).values()]
  if (all.length === 0) {
    return refuse(name, "the repository has no model in a .gguf file; look for one with GGUF in its name")
  }
  const found = quant === undefined ? all : all.filter(([first]) => quantOf(first!.path) === quant)
  if (found.length === 1) return checkParts(name, found[0]!)
  const known = [...new Set(all.flatMap(([first]) => quantOf(first!.path) ?? []))]
  if (found.length === 0) {
    return refuse(
      name,
      `there is no ${quant}; there ${known.length === 1 ? "is" : "are"} ${known.join(", ") || "none"}`
    )
  }
  return refuse(
    name,
    quant === undefined
      ? `there are ${all.length} models; say which: ${known.map((each) => `:${each}`).join(", ")}`
      : `there are ${found.length} with ${quant}; name one of the files: ${
        found.slice(0, 8).map(([first]) => first!.path).join(", ")
      }`
  )
}

/** The files of the model that a file belongs to. */
export const byFile = <F extends Listed>(
  name: string,
  files: ReadonlyArray<F>,
  path: string
): Result.Result<ReadonlyArray<F>, NoSuchModel> => {
  const all = [...models(files).values()]
  const found = all.find((model) => model.some((file) => file.path === path)) ??
    files.filter((file) => file.path === path)
  if (found.length > 0) return checkParts(name, found)
  const known = all.map(([first]) => first!.path)
  return refuse(
    name,
    `there is no ${path}; there ${known.length === 0 ? "is no .gguf file" : `are ${known.slice(0, 12).join(", ")}`}`
  )
}

const refuse = (name: string, detail: string) => Result.fail(new NoSuchModel({ name, detail }))
