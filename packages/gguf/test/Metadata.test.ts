import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as Metadata from "../src/Metadata.ts"

const file: Metadata.HasMetadata = {
  name: "test.gguf",
  metadata: new Map<string, Metadata.MetadataValue>([
    ["u8", { type: "uint8", value: 200 }],
    ["i32", Metadata.int32(-7)],
    ["u32", Metadata.uint32(2 ** 32 - 1)],
    ["u64", Metadata.uint64(40)],
    ["huge", Metadata.uint64(2n ** 60n)],
    ["f32", Metadata.float32(0.5)],
    ["f64", { type: "float64", value: 0.1 }],
    ["bool", Metadata.bool(true)],
    ["string", Metadata.string("yarn")],
    ["strings", Metadata.strings(["a", "b"])],
    ["bools", { type: "array", element: "bool", value: [true] }],
    ["i32s", Metadata.int32s(Int32Array.of(1, -1))],
    ["u16s", { type: "array", element: "uint16", value: Uint16Array.of(65535) }],
    ["u32s", { type: "array", element: "uint32", value: Uint32Array.of(1, 2 ** 31) }],
    ["i64s", { type: "array", element: "int64", value: BigInt64Array.of(-5n) }],
    ["u64s", { type: "array", element: "uint64", value: BigUint64Array.of(2n ** 31n) }],
    ["f32s", Metadata.float32s(Float32Array.of(0.5))]
  ])
}

const value = <A, E>(result: Result.Result<A, E>): A => Result.getOrThrow(result)
const error = <A, E>(result: Result.Result<A, E>): E => Result.getOrThrow(Result.flip(result))

describe("Metadata", () => {
  it("gives integers of any width that fit", () => {
    assert.strictEqual(value(Metadata.getUint32(file, "u8")), 200)
    assert.strictEqual(value(Metadata.getUint32(file, "u64")), 40)
    assert.strictEqual(value(Metadata.getUint32(file, "u32")), 2 ** 32 - 1)
    assert.strictEqual(value(Metadata.getInt32(file, "i32")), -7)
    assert.strictEqual(value(Metadata.getInteger(file, "i32")), -7)
  })

  it("says what was expected and what was found", () => {
    const range = error(Metadata.getUint32(file, "i32"))
    assert.deepInclude(range, { _tag: "WrongType", file: "test.gguf", key: "i32", found: "int32 -7" })
    assert.match(range.message, /i32 must be an integer from 0 to 2\^32 - 1, found int32 -7/)
    assert.deepInclude(error(Metadata.getUint32(file, "string")), { _tag: "WrongType", found: `string "yarn"` })
    assert.deepInclude(error(Metadata.getInt32(file, "u32")), { _tag: "WrongType" })
    assert.deepInclude(error(Metadata.getInteger(file, "huge")), { found: "uint64 1152921504606846976" })
    assert.deepInclude(error(Metadata.getFloat(file, "u8")), { _tag: "WrongType", expected: "a float" })
    assert.deepInclude(error(Metadata.getString(file, "strings")), { found: "array of 2 string" })
    assert.deepInclude(error(Metadata.getStrings(file, "string")), { expected: "an array of strings" })
    assert.deepInclude(error(Metadata.getBool(file, "u8")), { _tag: "WrongType", found: "uint8 200" })
    assert.deepInclude(error(Metadata.getFloat32s(file, "i32s")), { _tag: "WrongType" })
    assert.deepInclude(error(Metadata.getBools(file, "i32s")), { _tag: "WrongType" })
  })

  it("says what is missing", () => {
    const missing = error(Metadata.getString(file, "general.architecture"))
    assert.strictEqual(missing._tag, "MissingKey")
    assert.match(missing.message, /^test\.gguf: needs the metadata key general\.architecture \(a string\)/)
  })

  it("gives values of other types as such", () => {
    assert.strictEqual(value(Metadata.getFloat(file, "f32")), 0.5)
    assert.strictEqual(value(Metadata.getFloat(file, "f64")), 0.1)
    assert.strictEqual(value(Metadata.getBool(file, "bool")), true)
    assert.strictEqual(value(Metadata.getString(file, "string")), "yarn")
    assert.deepStrictEqual(value(Metadata.getStrings(file, "strings")), ["a", "b"])
    assert.deepStrictEqual(value(Metadata.getBools(file, "bools")), [true])
    assert.deepStrictEqual(value(Metadata.getFloat32s(file, "f32s")), Float32Array.of(0.5))
  })

  it("gives arrays of integers of any width that fit", () => {
    assert.deepStrictEqual(value(Metadata.getInt32s(file, "i32s")), Int32Array.of(1, -1))
    assert.deepStrictEqual(value(Metadata.getInt32s(file, "u16s")), Int32Array.of(65535))
    assert.deepStrictEqual(value(Metadata.getInt32s(file, "i64s")), Int32Array.of(-5))
    assert.deepInclude(error(Metadata.getInt32s(file, "u32s")), { _tag: "WrongType", found: "array of 2 uint32" })
    assert.deepInclude(error(Metadata.getInt32s(file, "u64s")), { _tag: "WrongType" })
    assert.deepInclude(error(Metadata.getInt32s(file, "f32s")), { _tag: "WrongType" })
  })

  it("optional and default values forgive absence only", () => {
    assert.strictEqual(value(Metadata.optional(Metadata.getUint32(file, "absent"))), undefined)
    assert.strictEqual(value(Metadata.optional(Metadata.getUint32(file, "u8"))), 200)
    assert.strictEqual(value(Metadata.withDefault(Metadata.getFloat(file, "absent"), 10000)), 10000)
    assert.strictEqual(error(Metadata.withDefault(Metadata.getFloat(file, "string"), 10000))._tag, "WrongType")
  })
})
