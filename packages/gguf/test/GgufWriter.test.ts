import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect, Result, Schema } from "effect"
import { fromBytes } from "../src/ByteSource.ts"
import * as Gguf from "../src/Gguf.ts"
import * as GgufType from "../src/GgufType.ts"
import * as GgufWriter from "../src/GgufWriter.ts"
import * as Metadata from "../src/Metadata.ts"

const written = (contents: GgufWriter.GgufContents) => Result.getOrThrow(GgufWriter.write(contents))
const refused = (contents: GgufWriter.GgufContents) => Result.getOrThrow(Result.flip(GgufWriter.write(contents)))
const reread = (bytes: Uint8Array) => Result.getOrThrow(Gguf.fromBytes("test.gguf", bytes))

const bits = (bits: number) => Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 ** bits - 1 }))
const Bytes64 = Schema.Array(bits(8)).check(Schema.isMaxLength(64))
const Text = Schema.String.check(Schema.isMaxLength(40))
const Plan = Schema.Struct({
  scalars: Schema.Array(Schema.Tuple([bits(4), Bytes64])).check(Schema.isMaxLength(12)),
  texts: Schema.Array(Text).check(Schema.isMaxLength(12)),
  bools: Schema.Array(Schema.Boolean).check(Schema.isMaxLength(12)),
  tensors: Schema.Array(Schema.Tuple([bits(8), bits(2), bits(2)])).check(Schema.isMaxLength(6)),
  alignment: Schema.Literals([1, 8, 32, 64, 4096]),
  chunkBytes: Schema.Literals([1, 7, 64, 2 ** 20])
})

const numbers = {
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  uint32: Uint32Array,
  int32: Int32Array,
  float32: Float32Array,
  uint64: BigUint64Array,
  int64: BigInt64Array,
  float64: Float64Array
} as const
const elements = Object.keys(numbers) as ReadonlyArray<keyof typeof numbers>

/** An array of numbers out of arbitrary bytes, and its first element as a scalar. */
const numeric = (selector: number, seed: ReadonlyArray<number>): ReadonlyArray<Metadata.MetadataValue> => {
  const element = elements[selector % elements.length]!
  const bytes = new Uint8Array(seed.length & ~7)
  bytes.set(seed.slice(0, bytes.length))
  const value = new numbers[element](bytes.buffer)
  const array = { type: "array", element, value } as Metadata.MetadataValue
  if (value.length === 0) return [array]
  const first = typeof value[0] === "bigint" && Number.isSafeInteger(Number(value[0])) ? Number(value[0]) : value[0]
  return [array, { type: element, value: first } as Metadata.MetadataValue]
}

const contentsOf = (plan: typeof Plan.Type): GgufWriter.GgufContents => {
  const unique = [...new Set(plan.texts.filter((text) => text.isWellFormed()))]
  const values: ReadonlyArray<Metadata.MetadataValue> = [
    ...plan.scalars.flatMap(([selector, seed]) => numeric(selector, seed)),
    ...unique.map(Metadata.string),
    Metadata.strings(unique),
    { type: "array", element: "bool", value: plan.bools },
    ...plan.bools.map(Metadata.bool)
  ]
  return {
    alignment: plan.alignment,
    metadata: values.map((value, index) => [`key.${index}.${unique[index] ?? ""}`, value] as const),
    tensors: plan.tensors.map(([selector, columns, rows], index) => {
      const type = GgufType.names[selector % GgufType.names.length]!
      const dims = [(columns + 1) * GgufType.table[type].blockValues, rows + 1]
      const bytes = GgufType.bytesOf(type, dims) as number
      return { name: `t.${index}`, type, dims, data: Uint8Array.from({ length: bytes }, (_, at) => at + index) }
    })
  }
}

describe("GgufWriter", () => {
  it.effect.prop("what is written is read, whatever the chunks", [Plan], ([plan]) =>
    Effect.gen(function*() {
      const contents = contentsOf(plan)
      const source = fromBytes("test.gguf", written(contents))
      const gguf = yield* Gguf.read(source, { chunkBytes: plan.chunkBytes })
      assert.deepStrictEqual(
        [...gguf.metadata],
        [...contents.metadata, ["general.alignment", Metadata.uint32(plan.alignment)]]
      )
      assert.strictEqual(gguf.alignment, plan.alignment)
      for (const { data, ...tensor } of contents.tensors) {
        const found = Result.getOrThrow(Gguf.getTensor(gguf, tensor.name))
        assert.deepInclude(found, tensor)
        assert.strictEqual(found.offset % plan.alignment, 0)
        assert.deepStrictEqual(yield* Gguf.readTensor(source, found), data)
      }
      assert.strictEqual(gguf.tensors.length, contents.tensors.length)
    }))

  it("writes an empty file", () => {
    const bytes = written({ metadata: [], tensors: [] })
    assert.strictEqual(bytes.length, 24)
    assert.strictEqual(reread(bytes).version, 3)
  })

  it("writes a subarray of a typed array", () => {
    const value = Int32Array.of(1, 2, 3).subarray(1)
    const { metadata } = reread(written({ metadata: [["a", Metadata.int32s(value)]], tensors: [] }))
    assert.deepStrictEqual(metadata.get("a"), Metadata.int32s(Int32Array.of(2, 3)))
  })

  it("writes the same bytes again from what was read", () => {
    const data = new Uint8Array(36)
    const bytes = written({
      metadata: [["general.alignment", Metadata.uint32(64)], ["b", Metadata.uint64(2n ** 64n - 1n)]],
      tensors: [{ name: "t", type: "Q4_0", dims: [32, 2], data }]
    })
    const { metadata } = reread(bytes)
    assertEquals(written({ metadata, tensors: [{ name: "t", type: "Q4_0", dims: [32, 2], data }] }), bytes)
  })

  it("the alignment option replaces the key", () => {
    const metadata = [["general.alignment", Metadata.uint32(64)]] as const
    assert.strictEqual(reread(written({ metadata, tensors: [], alignment: 128 })).alignment, 128)
  })

  it("refuses what a file cannot hold", () => {
    const data = new Uint8Array(4)
    const tensor = { name: "t", type: "F32", dims: [1], data } as const
    const key = (value: Metadata.MetadataValue) => refused({ metadata: [["a", value]], tensors: [] })
    assert.deepInclude(refused({ metadata: [], tensors: [{ ...tensor, dims: [2] }] }), { problem: "data-length" })
    assert.deepInclude(refused({ metadata: [], tensors: [{ ...tensor, dims: [] }] }), { problem: "rank" })
    assert.deepInclude(refused({ metadata: [], tensors: [{ ...tensor, dims: [0] }] }), { problem: "zero-dimension" })
    assert.deepInclude(refused({ metadata: [], tensors: [tensor, tensor] }), { problem: "duplicate-name" })
    assert.deepInclude(refused({ metadata: [], tensors: [{ ...tensor, name: "\ud800" }] }), { _tag: "InvalidText" })
    assert.deepInclude(refused({ metadata: [], tensors: [], alignment: 3 }), { problem: "invalid-alignment" })
    const twice = [["a", Metadata.bool(true)], ["a", Metadata.bool(true)]] as const
    assert.deepInclude(refused({ metadata: twice, tensors: [] }), { problem: "duplicate-key" })
    assert.deepInclude(key(Metadata.string("\udc00")), { _tag: "InvalidText", reading: "the value of a" })
    assert.deepInclude(key(Metadata.strings(["x", "\udc00"])), { _tag: "InvalidText" })
    for (const value of [-1, 0.5, 2 ** 32, NaN]) {
      assert.deepInclude(key(Metadata.uint32(value)), { _tag: "InvalidMetadata", problem: "value-range" })
    }
    assert.deepInclude(key(Metadata.uint64(2n ** 64n)), { problem: "value-range" })
    assert.deepInclude(key(Metadata.int32(2 ** 31)), { problem: "value-range" })
  })
})

describe("header", () => {
  it("is the beginning of the whole file, and says where the data goes", () => {
    const tensors = [
      { name: "a", type: "F32" as const, dims: [3], data: new Uint8Array(12).fill(1) },
      { name: "b", type: "Q4_0" as const, dims: [32, 2], data: new Uint8Array(36).fill(2) }
    ]
    const metadata = [["general.architecture", Metadata.string("test")]] as const
    const { bytes, offsets, size } = Result.getOrThrow(GgufWriter.header({ metadata, tensors }))
    const whole = Result.getOrThrow(GgufWriter.write({ metadata, tensors }))
    const assembled = new Uint8Array(size)
    assembled.set(bytes)
    tensors.forEach(({ data }, i) => assembled.set(data, offsets[i]!))
    assertEquals(assembled, whole)
  })
})
