import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect, Result } from "effect"
import { ByteSource, ByteSourceError, fromBytes } from "../src/ByteSource.ts"
import * as Gguf from "../src/Gguf.ts"
import type { GgufError } from "../src/GgufError.ts"
import { GgufReader } from "../src/GgufReader.ts"
import * as Bytes from "./support/bytes.ts"
import { recorded } from "./support/sources.ts"

const { entry, file, key, str, u32, u64, u8 } = Bytes

/** `Tag` or `Tag(problem)`: what a caller tells errors apart by. */
const kind = (error: GgufError) => "problem" in error ? `${error._tag}(${error.problem})` : error._tag

const failure = (bytes: Uint8Array, options?: Gguf.ReadOptions): GgufError => {
  const result = Gguf.fromBytes("test.gguf", bytes, options)
  if (Result.isSuccess(result)) throw new Error("the file was accepted")
  return result.failure
}

/** The error, whatever the chunks are, and its message names the file. */
const rejects = (bytes: Uint8Array, expected: string, says: RegExp) => {
  const error = failure(bytes)
  assert.strictEqual(kind(error), expected)
  assert.match(error.message, says)
  assert.match(error.message, /^test\.gguf: /)
  assertEquals(failure(bytes, { chunkBytes: 1 }), error)
}

const accepts = (bytes: Uint8Array): Gguf.Gguf => {
  const whole = Result.getOrThrow(Gguf.fromBytes("test.gguf", bytes))
  assertEquals(Result.getOrThrow(Gguf.fromBytes("test.gguf", bytes, { chunkBytes: 1 })), whole)
  return whole
}

const aligned = (type: number, value: Uint8Array) => file([key("general.alignment", type, value)])
const tensor = (over: Partial<Bytes.Entry> = {}) => entry({ name: "t", dims: [8], ...over })
const array = (element: string, value: unknown) => ({ type: "array", element, value })
const n32 = (name: string, value: number) => key(name, 4, u32(value))

describe("header", () => {
  it("accepts an empty file of version 2 and 3", () => {
    assert.strictEqual(accepts(file([], [], { version: 2 })).version, 2)
    assert.strictEqual(accepts(file([])).version, 3)
  })
  it("refuses another magic", () =>
    rejects(Bytes.join(new TextEncoder().encode("GGML"), Bytes.zeros(40)), "NotGguf", /47474d4c/))
  it("refuses version 1", () =>
    rejects(file([], [], { version: 1 }), "UnsupportedVersion", /version 1 in little-endian/))
  it("refuses a later version", () => rejects(file([], [], { version: 4 }), "UnsupportedVersion", /version 4/))
  it("refuses version 0", () => rejects(file([], [], { version: 0 }), "UnsupportedVersion", /version 0/))
  it("refuses a big-endian file", () => {
    rejects(file([], [], { version: 0x03000000 }), "UnsupportedVersion", /version 3 in big-endian/)
    assert.deepInclude(failure(file([], [], { version: 0x03000000 })), { version: 3, byteOrder: "big-endian" })
  })
  it("refuses an empty source", () =>
    rejects(new Uint8Array(0), "Truncated", /magic bytes needs 4 bytes at offset 0, 0 are/))
  it("refuses a file that ends in the magic", () => rejects(file([]).subarray(0, 3), "Truncated", /magic/))
  it("refuses a file that ends in the version", () => rejects(file([]).subarray(0, 7), "Truncated", /version/))
  it("refuses a file that ends in the counts", () =>
    rejects(file([]).subarray(0, 23), "Truncated", /number of metadata keys/))
  it("refuses more keys than the file can hold", () =>
    rejects(file([n32("a", 1)], [], { keyCount: 2 }), "TooLarge(beyond-file)", /metadata keys.* is 2, at most 1/))
  it("refuses more tensors than the file can hold", () =>
    rejects(file([], [], { tensorCount: 2 ** 40 }), "TooLarge(beyond-file)", /number of tensors/))
  it("refuses a count beyond 2^53", () =>
    rejects(file([], [], { tensorCount: 2n ** 64n - 1n }), "TooLarge(beyond-2^53)", /18446744073709551615/))
})

describe("metadata", () => {
  it("reads every type", () => {
    const { metadata } = accepts(file([
      key("u8", 0, u8(200)),
      key("i8", 1, u8(200)),
      key("u16", 2, Bytes.join(u8(1), u8(255))),
      key("i16", 3, Bytes.join(u8(1), u8(255))),
      key("u32", 4, u32(2 ** 32 - 1)),
      key("i32", 5, u32(2 ** 32 - 1)),
      key("f32", 6, u32(0x3fc00000)),
      key("bool", 7, u8(1)),
      key("string", 8, str("\ufeffé漢😀\0")),
      key("u64", 10, u64(2n ** 53n - 1n)),
      key("u64 big", 10, u64(2n ** 53n)),
      key("i64", 11, u64(-5n)),
      key("i64 big", 11, u64(-(2n ** 63n))),
      key("f64", 12, u64(0x3ff8000000000000n)),
      key("", 4, u32(0)),
      key("strings", 9, Bytes.join(u32(8), u64(3), str("a"), str(""), str("bé"))),
      key("no strings", 9, Bytes.join(u32(8), u64(0))),
      key("bools", 9, Bytes.join(u32(7), u64(2), u8(0), u8(1))),
      key("i16s", 9, Bytes.join(u32(3), u64(2), u8(255), u8(255), u8(1), u8(0))),
      key("u64s", 9, Bytes.join(u32(10), u64(1), u64(2n ** 64n - 1n)))
    ]))
    assert.deepStrictEqual([...metadata] as unknown, [
      ["u8", { type: "uint8", value: 200 }],
      ["i8", { type: "int8", value: -56 }],
      ["u16", { type: "uint16", value: 0xff01 }],
      ["i16", { type: "int16", value: -255 }],
      ["u32", { type: "uint32", value: 2 ** 32 - 1 }],
      ["i32", { type: "int32", value: -1 }],
      ["f32", { type: "float32", value: 1.5 }],
      ["bool", { type: "bool", value: true }],
      ["string", { type: "string", value: "\ufeffé漢😀\0" }],
      ["u64", { type: "uint64", value: 2 ** 53 - 1 }],
      ["u64 big", { type: "uint64", value: 2n ** 53n }],
      ["i64", { type: "int64", value: -5 }],
      ["i64 big", { type: "int64", value: -(2n ** 63n) }],
      ["f64", { type: "float64", value: 1.5 }],
      ["", { type: "uint32", value: 0 }],
      ["strings", array("string", ["a", "", "bé"])],
      ["no strings", array("string", [])],
      ["bools", array("bool", [false, true])],
      ["i16s", array("int16", Int16Array.of(-1, 1))],
      ["u64s", array("uint64", BigUint64Array.of(2n ** 64n - 1n))]
    ])
  })
  it("refuses the same key twice", () =>
    rejects(file([n32("a", 1), n32("a", 1)]), "InvalidMetadata(duplicate-key)", /"a"/))
  it("refuses an unknown type of a value", () =>
    rejects(file([key("a", 13, u32(0))]), "InvalidMetadata(unknown-value-type)", /value type 13, 0 to 12/))
  it("refuses an unknown type of elements", () =>
    rejects(
      file([key("a", 9, Bytes.join(u32(99), u64(0)))]),
      "InvalidMetadata(unknown-value-type)",
      /value type 99/
    ))
  it("refuses an array of arrays", () =>
    rejects(file([key("a", 9, Bytes.join(u32(9), u64(0)))]), "InvalidMetadata(nested-array)", /arrays of arrays/))
  it("refuses a bool that is neither 0 nor 1", () =>
    rejects(file([key("a", 7, u8(2))]), "InvalidMetadata(invalid-bool)", /found 2/))
  it("refuses a bool in an array that is neither 0 nor 1", () =>
    rejects(file([key("a", 9, Bytes.join(u32(7), u64(1), u8(255)))]), "InvalidMetadata(invalid-bool)", /found 255/))
  it("refuses a key longer than the file", () =>
    rejects(file([Bytes.join(u64(1000), Bytes.zeros(8))]), "TooLarge(beyond-file)", /metadata key 0 .* is 1000/))
  it("refuses a key that is not UTF-8", () =>
    rejects(file([Bytes.join(str(Uint8Array.of(0xff)), u32(4), u32(0))]), "InvalidText", /metadata key 0/))
  it("refuses a value that is not UTF-8", () =>
    rejects(file([key("a", 8, str(Uint8Array.of(0xc3)))]), "InvalidText", /the value of a/))
  it("refuses a string in an array that is not UTF-8", () =>
    rejects(
      file([key("a", 9, Bytes.join(u32(8), u64(3), str("x"), str(Uint8Array.of(0xc3)), str(Uint8Array.of(0xa9))))]),
      "InvalidText",
      /string 1 of the value of a/
    ))
  it("refuses a string longer than the file", () =>
    rejects(file([key("a", 8, u64(1))]), "TooLarge(beyond-file)", /the value of a .* is 1, at most 0/))
  it("refuses a string length beyond 2^53", () =>
    rejects(file([key("a", 8, u64(2n ** 63n))]), "TooLarge(beyond-2^53)", /the value of a/))
  it("refuses more strings than the file can hold", () =>
    rejects(
      file([key("a", 9, Bytes.join(u32(8), u64(3), u64(0), u64(0)))]),
      "TooLarge(beyond-file)",
      /number of strings in the value of a .* is 3, at most 2/
    ))
  it("refuses a string in an array that is longer than the file", () =>
    rejects(
      file([key("a", 9, Bytes.join(u32(8), u64(2), str("x"), u64(2 ** 50)))]),
      "TooLarge(beyond-file)",
      /string 1 of the value of a/
    ))
  it("refuses more numbers than the file can hold", () =>
    rejects(file([key("a", 9, Bytes.join(u32(4), u64(2), u32(0)))]), "TooLarge(beyond-file)", /at most 1/))
  it("refuses a product of count and size beyond 2^64", () =>
    rejects(file([key("a", 9, Bytes.join(u32(10), u64(2 ** 52)))]), "TooLarge(beyond-file)", /4503599627370496/))
  it("refuses a file that ends in a number", () =>
    rejects(file([key("a", 12, u32(0)), Bytes.zeros(3)], [], { keyCount: 1 }), "Truncated", /the value of a needs 8/))
})

describe("alignment", () => {
  it("is 32 without the key", () => assert.strictEqual(accepts(file([])).alignment, 32))
  it("is the key's", () => {
    const { alignment, dataOffset } = accepts(aligned(4, u32(64)))
    assert.deepStrictEqual([alignment, dataOffset], [64, 64])
  })
  it("is not zero", () => rejects(aligned(4, u32(0)), "InvalidMetadata(invalid-alignment)", /found uint32 0/))
  it("is a power of two", () => rejects(aligned(4, u32(48)), "InvalidMetadata(invalid-alignment)", /found uint32 48/))
  it("is a uint32, no other integer", () =>
    rejects(aligned(10, u64(32)), "InvalidMetadata(invalid-alignment)", /found uint64 32/))
  it("is no string", () => rejects(aligned(8, str("32")), "InvalidMetadata(invalid-alignment)", /found string "32"/))
})

describe("tensors", () => {
  it("gives absolute offsets and bytes", () => {
    const gguf = accepts(file([], [tensor(), tensor({ name: "q", dims: [64, 3, 2], type: 2, offset: 32 })]))
    assert.strictEqual(gguf.dataOffset % 32, 0)
    assertEquals(Result.getOrThrow(Gguf.getTensor(gguf, "q")), {
      name: "q",
      type: "Q4_0",
      dims: [64, 3, 2],
      offset: gguf.dataOffset + 32,
      bytes: 64 * 3 * 2 / 32 * 18
    })
  })
  it("says which tensor is missing", () => {
    const error = Gguf.getTensor(accepts(file([])), "output.weight").pipe(Result.flip, Result.getOrThrow)
    assert.strictEqual(error._tag, "MissingTensor")
    assert.match(error.message, /needs the tensor output\.weight/)
  })
  it("accepts tensors out of order, with gaps", () =>
    assert.strictEqual(accepts(file([], [tensor({ offset: 64 }), tensor({ name: "u" })])).tensors.length, 2))
  it("accepts a tensor that ends with the file", () =>
    assert.strictEqual(accepts(file([], [tensor()], { dataBytes: 32 })).tensors.length, 1))
  it("refuses the same name twice", () =>
    rejects(file([], [tensor(), tensor({ offset: 32 })]), "InvalidTensor(duplicate-name)", /"t"/))
  it("refuses a tensor of no dimensions", () =>
    rejects(file([], [tensor({ dims: [] })]), "InvalidTensor(rank)", /0 dimensions/))
  it("refuses a tensor of five dimensions", () =>
    rejects(file([], [tensor({ rank: 5 })]), "InvalidTensor(rank)", /5 dimensions/))
  it("refuses a dimension of zero", () =>
    rejects(file([], [tensor({ dims: [8, 0] })]), "InvalidTensor(zero-dimension)", /8 x 0/))
  it("refuses a dimension beyond 2^53", () =>
    rejects(file([], [tensor({ dims: [2n ** 63n] })]), "TooLarge(beyond-2^53)", /dimension 0 of t/))
  it("refuses dimensions whose product overflows 2^53", () =>
    rejects(file([], [tensor({ dims: [2 ** 27, 2 ** 27] })]), "InvalidTensor(size-overflow)", /2\^53/))
  it("refuses dimensions whose product wraps to zero in 64 bits", () =>
    rejects(file([], [tensor({ dims: [2 ** 32, 2 ** 32] })]), "InvalidTensor(size-overflow)", /2\^53/))
  it("refuses bytes that overflow 2^53", () =>
    rejects(file([], [tensor({ dims: [2 ** 52], type: 28 })]), "InvalidTensor(size-overflow)", /2\^53/))
  it("refuses an unknown type", () =>
    rejects(file([], [tensor({ type: 4 })]), "InvalidTensor(unknown-type)", /tensor type 4/))
  it("refuses a row that is not a whole number of blocks", () =>
    rejects(
      file([], [tensor({ dims: [48, 2], type: 2 })]),
      "InvalidTensor(partial-block)",
      /48 .* 32 values of a Q4_0/
    ))
  it("refuses a misaligned tensor", () =>
    rejects(file([], [tensor({ offset: 16 })]), "InvalidTensor(misaligned)", /16/))
  it("refuses an offset beyond 2^53", () =>
    rejects(file([], [tensor({ offset: 2n ** 60n })]), "TooLarge(beyond-2^53)", /offset of t/))
  it("refuses a tensor outside of the file", () => {
    rejects(file([], [tensor()], { dataBytes: 31 }), "InvalidTensor(outside-file)", /32 bytes at 0 .* exceed/)
    rejects(file([], [tensor({ offset: 2 ** 52 })]), "InvalidTensor(outside-file)", /exceed/)
    rejects(file([], [tensor({ dims: [2 ** 50] })]), "InvalidTensor(outside-file)", /exceed/)
  })
  it("refuses tensors that overlap", () =>
    rejects(
      file([], [tensor({ offset: 32 }), tensor({ name: "u", dims: [16] })]),
      "InvalidTensor(overlap)",
      /inside u/
    ))
  it("refuses a name that is not UTF-8", () =>
    rejects(
      file([], [Bytes.join(str(Uint8Array.of(0x80)), u32(1), u64(8), u32(0), u64(0))]),
      "InvalidText",
      /name of tensor 0/
    ))
  it("refuses a file that ends in the table", () =>
    rejects(Bytes.join(file([], [], { tensorCount: 1 }), tensor().subarray(0, 32)), "Truncated", /offset of t/))
})

describe("limits", () => {
  const claim = key("a", 9, Bytes.join(u32(4), u64(2 ** 32)))
  it.effect("does not allocate what a large file merely claims to hold", () =>
    Effect.gen(function*() {
      const { ranges, source } = recorded({
        name: "test.gguf",
        size: 2 ** 45,
        read: (offset, length) =>
          Effect.sync(() => {
            const bytes = new Uint8Array(length)
            if (offset === 0) bytes.set(file([claim]))
            return bytes
          })
      })
      const error = yield* Effect.flip(Gguf.read(source))
      assert.strictEqual(error._tag, "TooLarge")
      assert.match(error.message, /17179869184, at most 67108864 .*beyond-limit/)
      assertEquals(ranges, [[0, 2 ** 20]])
    }))
  it("holds for strings and long lists, too", () => {
    const strings = file([key("a", 9, Bytes.join(u32(8), u64(100), ...Array.from({ length: 100 }, () => str("x"))))])
    assert.strictEqual(kind(failure(strings, { maxHeaderBytes: 500, chunkBytes: 64 })), "TooLarge(beyond-limit)")
    const string = file([key("a", 8, str("x".repeat(600)))])
    assert.strictEqual(kind(failure(string, { maxHeaderBytes: 500 })), "TooLarge(beyond-limit)")
  })
})

describe("messages", () => {
  it("shorten names that are as long as the file", () => {
    const name = "x".repeat(5000)
    for (const keys of [key(name, 13, u32(0)), key(name, 8, u64(9)), key(name, 7, u8(9)), str(name)]) {
      assert.isBelow(failure(file([keys], [], { keyCount: 1 })).message.length, 500)
    }
    assert.isBelow(failure(file([], [tensor({ name, rank: 9 })])).message.length, 500)
    assert.isBelow(failure(file([], [tensor({ name, dims: [2n ** 63n] })])).message.length, 500)
  })
})

describe("sources", () => {
  const bytes = file([key("a", 8, str("x".repeat(100))), n32("b", 2)], [tensor()], { dataBytes: 5000 })

  it.effect("asks for every byte of the header once and for no tensor data", () =>
    Effect.gen(function*() {
      const { ranges, source } = recorded(fromBytes("test.gguf", bytes))
      const gguf = yield* Gguf.read(source, { chunkBytes: 16 })
      let end = 0
      for (const [offset, length] of ranges) {
        assert.strictEqual(offset, end)
        end = offset + length
      }
      assert.isAtMost(end, gguf.dataOffset + 16)
      assertEquals(gguf, accepts(bytes))
      assert.deepStrictEqual(yield* Gguf.readTensor(source, gguf.tensors[0]!), new Uint8Array(32))
    }))

  it.effect("passes on the errors of a source", () =>
    Effect.gen(function*() {
      const gone = new ByteSourceError({ source: "x", offset: 0, length: 1, problem: "unavailable", detail: "gone" })
      const error = yield* Effect.flip(Gguf.read({ name: "x", size: 100, read: () => Effect.fail(gone) }))
      assert.strictEqual(error, gone)
    }))

  it.effect("rejects an answer of the wrong length", () =>
    Effect.gen(function*() {
      const source = { name: "x", size: 100, read: () => Effect.succeed(new Uint8Array(0)) }
      const error = yield* Effect.flip(Gguf.read(source))
      assert.deepInclude(error, { _tag: "ByteSourceError", problem: "short-read" })
    }))

  it.effect("is what reading takes as a service", () =>
    Effect.gen(function*() {
      const gguf = yield* (yield* GgufReader).read(yield* ByteSource)
      assertEquals(gguf, accepts(bytes))
    }).pipe(Effect.provide(ByteSource.layerBytes("test.gguf", bytes))))
})
