/** Reading a model's numbers from metadata: what is missing, of another type or impossible is an error that names the key. */
import type { MissingKey, WrongType } from "@tg/gguf/GgufError"
import * as Metadata from "@tg/gguf/Metadata"
import { Result, Schema } from "effect"

/** A file whose metadata does not describe a model that can be run. */
export class ConfigError extends Schema.TaggedError<ConfigError>()("ConfigError", {
  file: Schema.String,
  key: Schema.String,
  message: Schema.String
}) {}

// a text in a damaged file can be as long as the file
export const clip = (text: string): string => text.length <= 80 ? text : `${text.slice(0, 80)}…`

/** A key with an impossible value. */
export const invalid = (file: Metadata.HasMetadata, key: string, found: unknown, wanted: string) =>
  Result.fail(
    new ConfigError({
      file: file.name,
      key,
      message: `${file.name}: ${key} is ${
        clip(String(found))
      }, expected ${wanted}; convert the model again or choose another`
    })
  )

/** What a number has to be. */
export interface Range {
  readonly isValid: (x: number) => boolean
  readonly wanted: string
}

/** A number that must lie in a range; NaN lies in none. */
export const within = (file: Metadata.HasMetadata, key: string, found: number, { isValid, wanted }: Range) =>
  Number.isFinite(found) && isValid(found) ? Result.succeed(found) : invalid(file, key, found, wanted)

/** Ranges of a model's numbers. */
export const positive: Range = { isValid: (x) => x > 0, wanted: "a finite number above 0" }
/** 0 or more. */
export const notNegative: Range = { isValid: (x) => x >= 0, wanted: "a finite number, 0 or more" }
/** Above 1. */
export const aboveOne: Range = { isValid: (x) => x > 1, wanted: "a finite number above 1" }
/** Between 0 and 1. */
export const small: Range = { isValid: (x) => x > 0 && x < 1, wanted: "a number above 0 and below 1" }
/** 1 or more. */
export const atLeastOne: Range = { isValid: (x) => x >= 1, wanted: "1 or more" }

/** Any error of reading as a `ConfigError`. */
export const asConfigError = <A>(
  file: Metadata.HasMetadata,
  found: Result.Result<A, ConfigError | MissingKey | WrongType>
): Result.Result<A, ConfigError> =>
  Result.mapError(found, (error) =>
    error._tag === "ConfigError"
      ? error
      : new ConfigError({ file: file.name, key: error.key, message: error.message }))

/** The keys of one architecture. */
export const reader = (file: Metadata.HasMetadata, architecture: string) => {
  const key = (name: string): string => `${architecture}.${name}`
  const required = (name: string) => Metadata.getUint32(file, key(name))
  const integer = (name: string, otherwise: number) => Metadata.withDefault(required(name), otherwise)
  const float = (name: string, otherwise: number, range: Range) =>
    Result.flatMap(
      Metadata.withDefault(Metadata.getFloat(file, key(name)), otherwise),
      (found) => within(file, key(name), found, range)
    )
  const requiredFloat = (name: string, range: Range) =>
    Result.flatMap(Metadata.getFloat(file, key(name)), (found) => within(file, key(name), found, range))
  const count = (name: string) => Result.flatMap(required(name), (found) => within(file, key(name), found, atLeastOne))
  const bool = (name: string, otherwise: boolean) => Metadata.withDefault(Metadata.getBool(file, key(name)), otherwise)
  const string = (name: string, otherwise: string) =>
    Metadata.withDefault(Metadata.getString(file, key(name)), otherwise)
  const fail = (name: string, found: unknown, wanted: string) => invalid(file, key(name), found, wanted)
  const has = (name: string): boolean => file.metadata.has(key(name))
  return { key, required, integer, float, requiredFloat, count, bool, string, fail, has }
}

/** Tokens of the vocabulary: a key says how many, or the tokenizer has them. */
export const vocabularySize = (file: Metadata.HasMetadata, key: string) =>
  Result.gen(function*() {
    const given = yield* Metadata.withDefault(Metadata.getUint32(file, key), 0)
    return given > 0 ? given : (yield* Metadata.getStrings(file, "tokenizer.ggml.tokens")).length
  })

/** What a model is called. */
export const nameOf = (file: Metadata.HasMetadata) =>
  Result.map(Metadata.withDefault(Metadata.getString(file, "general.name"), file.name), clip)
