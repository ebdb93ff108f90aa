/** Which part of a model a file says that it is. */
import { Result, Schema } from "effect"
import type { WrongType } from "./GgufError.ts"
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

/** Keys of a part. */
export const keys = { number: "split.no", count: "split.count", tensors: "split.tensors.count" } as const

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
