/** Metadata values, their constructors, and typed access to them. */
import { Result } from "effect"
import { MissingKey, WrongType } from "./GgufError.ts"

/** Value types by their id in a file. */
export const types = [
  "uint8",
  "int8",
  "uint16",
  "int16",
  "uint32",
  "int32",
  "float32",
  "bool",
  "string",
  "array",
  "uint64",
  "int64",
  "float64"
] as const

/** The name of a value type. */
export type Type = typeof types[number]

/**
 * One value. 64-bit integers are numbers when a number holds them exactly, else bigints.
 */
export type Scalar =
  | {
    readonly type: "uint8" | "int8" | "uint16" | "int16" | "uint32" | "int32" | "float32" | "float64"
    readonly value: number
  }
  | { readonly type: "uint64" | "int64"; readonly value: number | bigint }
  | { readonly type: "bool"; readonly value: boolean }
  | { readonly type: "string"; readonly value: string }

/** The arrays of numbers, by element type. 64-bit integers stay exact. */
export interface NumericArrays {
  readonly uint8: Uint8Array
  readonly int8: Int8Array
  readonly uint16: Uint16Array
  readonly int16: Int16Array
  readonly uint32: Uint32Array
  readonly int32: Int32Array
  readonly float32: Float32Array
  readonly uint64: BigUint64Array
  readonly int64: BigInt64Array
  readonly float64: Float64Array
}

/** An array of numbers; the elements are those of a typed array. */
export type NumericArray = {
  readonly [E in keyof NumericArrays]: {
    readonly type: "array"
    readonly element: E
    readonly value: NumericArrays[E]
  }
}[keyof NumericArrays]

/** A list of values of one type; lists of lists do not exist. */
export type ArrayValue =
  | NumericArray
  | { readonly type: "array"; readonly element: "bool"; readonly value: ReadonlyArray<boolean> }
  | { readonly type: "array"; readonly element: "string"; readonly value: ReadonlyArray<string> }

/** What a key stands for. */
export type MetadataValue = Scalar | ArrayValue

/** What has metadata: a file that was read. */
export interface HasMetadata {
  readonly name: string
  readonly metadata: ReadonlyMap<string, MetadataValue>
}

/** Bytes of one value of a type of fixed size. */
export const scalarBytes = {
  uint8: 1,
  int8: 1,
  uint16: 2,
  int16: 2,
  uint32: 4,
  int32: 4,
  float32: 4,
  bool: 1,
  uint64: 8,
  int64: 8,
  float64: 8
} as const

/** Makes a `uint32` value. */
export const uint32 = (value: number): MetadataValue => ({ type: "uint32", value })
/** Makes an `int32` value. */
export const int32 = (value: number): MetadataValue => ({ type: "int32", value })
/** Makes a `uint64` value. */
export const uint64 = (value: number | bigint): MetadataValue => ({ type: "uint64", value })
/** Makes a `float32` value. */
export const float32 = (value: number): MetadataValue => ({ type: "float32", value })
/** Makes a `bool` value. */
export const bool = (value: boolean): MetadataValue => ({ type: "bool", value })
/** Makes a `string` value. */
export const string = (value: string): MetadataValue => ({ type: "string", value })
/** Makes an array of strings. */
export const strings = (value: ReadonlyArray<string>): MetadataValue => ({ type: "array", element: "string", value })
/** Makes an array of `int32`. */
export const int32s = (value: Int32Array): MetadataValue => ({ type: "array", element: "int32", value })
/** Makes an array of `float32`. */
export const float32s = (value: Float32Array): MetadataValue => ({ type: "array", element: "float32", value })

/** What a getter answers. */
export type Lookup<A> = Result.Result<A, MissingKey | WrongType>

/** `"uint32 5"`, `"array of 3 string"`: a value as an error shows it. */
export const describe = (value: MetadataValue): string => {
  if (value.type === "array") return `array of ${value.value.length} ${value.element}`
  const text = String(value.value)
  return `${value.type} ${value.type === "string" ? JSON.stringify(text.slice(0, 40)) : text}`
}

/** Any integer type, as long as the value is a safe integer. */
export const getInteger = (file: HasMetadata, key: string): Lookup<number> =>
  integer(file, key, "an integer", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)

/** Any integer type, as long as the value fits 32 bits without a sign. */
export const getUint32 = (file: HasMetadata, key: string): Lookup<number> =>
  integer(file, key, "an integer from 0 to 2^32 - 1", 0, 2 ** 32 - 1)

/** Any integer type, as long as the value fits 32 bits with a sign. */
export const getInt32 = (file: HasMetadata, key: string): Lookup<number> =>
  integer(file, key, "an integer from -2^31 to 2^31 - 1", -(2 ** 31), 2 ** 31 - 1)

/** A `float32` or a `float64`. */
export const getFloat = (file: HasMetadata, key: string): Lookup<number> =>
  get(file, key, "a float", (found) => found.type === "float32" || found.type === "float64" ? found.value : undefined)

/** A `bool`. */
export const getBool = (file: HasMetadata, key: string): Lookup<boolean> =>
  get(file, key, "a bool", (found) => found.type === "bool" ? found.value : undefined)

/** A `string`. */
export const getString = (file: HasMetadata, key: string): Lookup<string> =>
  get(file, key, "a string", (found) => found.type === "string" ? found.value : undefined)

/** An array of `string`. */
export const getStrings = (file: HasMetadata, key: string): Lookup<ReadonlyArray<string>> =>
  get(
    file,
    key,
    "an array of strings",
    (found) => found.type === "array" && found.element === "string" ? found.value : undefined
  )

/** An array of `bool`. */
export const getBools = (file: HasMetadata, key: string): Lookup<ReadonlyArray<boolean>> =>
  get(
    file,
    key,
    "an array of bools",
    (found) => found.type === "array" && found.element === "bool" ? found.value : undefined
  )

/** An array of any integer type, as long as every element fits 32 bits with a sign. `int32` is not copied. */
export const getInt32s = (file: HasMetadata, key: string): Lookup<Int32Array> =>
  get(file, key, "an array of integers from -2^31 to 2^31 - 1", (found) => {
    if (found.type !== "array") return undefined
    switch (found.element) {
      case "int32":
        return found.value
      case "uint8":
      case "int8":
      case "uint16":
      case "int16":
        return Int32Array.from(found.value)
      case "uint32":
        return found.value.every((each) => each < 2 ** 31) ? Int32Array.from(found.value) : undefined
      case "uint64":
        return found.value.every((each) => each < 2n ** 31n) ? Int32Array.from(found.value, Number) : undefined
      case "int64":
        return found.value.every((each) => each >= -(2n ** 31n) && each < 2n ** 31n)
          ? Int32Array.from(found.value, Number)
          : undefined
      default:
        return undefined
    }
  })

/** An array of `float32`. */
export const getFloat32s = (file: HasMetadata, key: string): Lookup<Float32Array> =>
  get(
    file,
    key,
    "an array of float32",
    (found) => found.type === "array" && found.element === "float32" ? found.value : undefined
  )

/** Turns an absent key into `undefined`; a value of the wrong type stays an error. */
export const optional = <A>(lookup: Lookup<A>): Result.Result<A | undefined, WrongType> =>
  withDefault(lookup, undefined)

/** Turns an absent key into a default; a value of the wrong type stays an error. */
export const withDefault = <A, B>(lookup: Lookup<A>, value: B): Result.Result<A | B, WrongType> => {
  if (Result.isSuccess(lookup)) return Result.succeed(lookup.success)
  return lookup.failure._tag === "MissingKey" ? Result.succeed(value) : Result.fail(lookup.failure)
}

const get = <A>(
  file: HasMetadata,
  key: string,
  expected: string,
  as: (found: MetadataValue) => A | undefined
): Lookup<A> => {
  const found = file.metadata.get(key)
  if (found === undefined) return Result.fail(new MissingKey({ file: file.name, key, expected }))
  const value = as(found)
  return value === undefined
    ? Result.fail(new WrongType({ file: file.name, key, expected, found: describe(found) }))
    : Result.succeed(value)
}

const integer = (file: HasMetadata, key: string, expected: string, least: number, most: number): Lookup<number> =>
  get(file, key, expected, (found) => {
    switch (found.type) {
      case "uint8":
      case "int8":
      case "uint16":
      case "int16":
      case "uint32":
      case "int32":
      case "uint64":
      case "int64":
        return typeof found.value === "number" && found.value >= least && found.value <= most ? found.value : undefined
      default:
        return undefined
    }
  })
