/** Recorded blocks of every type, through the loader and through compiled dequantisation. */
import { readFileSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import * as Loader from "@tg/engine/Loader"
import { fromBytes } from "@tg/gguf/ByteSource"
import * as GgufType from "@tg/gguf/GgufType"
import * as Layout from "@tg/gguf/Layout"
import { Jit } from "@tg/jit/Jit"
import { type Binding, Device } from "@tg/runtime/Device"
import * as Int8 from "@tg/tensor/Int8"
import { contract } from "@tg/tensor/Nn"
import { assign, make } from "@tg/tensor/Program"
import { buffer, type Tensor } from "@tg/tensor/Tensor"
import { Effect } from "effect"
import * as Devices from "../../../src/Devices.ts"

interface Entry {
  readonly file: Uint8Array
  readonly blocks: number
  readonly values: number
  readonly rows: number
  readonly cols: number
  /** RMS error of llama.cpp's product, which rounds the activation to 8 bits. */
  readonly cpu_rms_err: number
  /** Where things lie in the file of vectors. */
  readonly offsets: { readonly [K in "blocks" | "values" | "matrix" | "x" | "y"]: number }
}

/** Vectors of the usual types, and of the rare ones. */
const entries = ["dequant", "dequant-rare"].flatMap((name) => {
  const folder = new URL(`../../../../../test/vectors/${name}/`, import.meta.url)
  const index = JSON.parse(readFileSync(new URL("index.json", folder), "utf8")) as {
    readonly types: Readonly<Record<GgufType.Name, Omit<Entry, "file">>>
  }
  const file = readFileSync(new URL("vectors.bin", folder))
  return Object.entries(index.types).map(([type, entry]) => [type as GgufType.Name, { ...entry, file }] as const)
})
const bytesAt = ({ file }: Entry, offset: number, length: number): Uint8Array =>
  Uint8Array.from(file.subarray(offset, offset + length))
const floatsAt = (entry: Entry, offset: number, count: number): Float32Array =>
  new Float32Array(bytesAt(entry, offset, 4 * count).buffer)

/** Compares values with what they have to be. */
export type Compare = (found: Float32Array, expected: Float32Array) => void

const print = (x: number | undefined): string => Object.is(x, -0) ? "-0" : String(x)

const differing = (
  found: Float32Array,
  expected: Float32Array,
  equal: (found: number, expected: number) => boolean
): ReadonlyArray<string> => {
  assert.strictEqual(found.length, expected.length)
  return Array.from(expected.keys()).filter((i) => !equal(found[i]!, expected[i]!)).slice(0, 5)
    .map((i) => `${i}: ${print(found[i])}, not ${print(expected[i])}`)
}

/** Bit for bit, signs of zeros included. */
export const sameBits: Compare = (found, expected) => assert.deepEqual(differing(found, expected, Object.is), [])

const smallestNormal = 2 ** -126
const ulp = (x: number): number => 2 ** (Math.floor(Math.log2(Math.max(Math.abs(x), smallestNormal))) - 23)

// What flushing subnormal numbers can turn into zero: they, and a product of a subnormal scale and a code below 16.
const flushed = 16 * smallestNormal

/**
 * What WGSL promises: a multiplication and an addition may be one operation with one rounding, the sign of a zero is not
 * kept, and subnormal numbers may count as zero. No value of the vectors is that small; of all BF16 and MXFP4 numbers
 * some are.
 */
export const oneRounding: Compare = (found, expected) =>
  assert.deepEqual(
    differing(found, expected, (a, b) => Math.abs(a - b) <= ulp(b) || (a === 0 && Math.abs(b) < flushed)),
    []
  )

/** Tensors on the device, as the loader puts them there. */
const load = Effect.fn("load")(function*(
  tensors: ReadonlyArray<{ readonly layout: Layout.Layout; readonly bytes: Uint8Array }>
) {
  const bytes = new Uint8Array(tensors.reduce((sum, t) => sum + t.bytes.length, 0))
  let offset = 0
  const wanted = tensors.map(({ bytes: own, layout }, i) => {
    bytes.set(own, offset)
    offset += own.length
    const tensor = {
      name: `${i}`,
      type: layout.type,
      dims: layout.shape.toReversed(),
      offset: offset - own.length,
      bytes: own.length
    }
    return { layout, tensor }
  })
  // the staging buffer holds less than a tensor, so that its parts have to meet
  const loaded = yield* Loader.load(fromBytes("vectors", bytes), wanted, { chunkBytes: 4096 })
  return tensors.map(({ layout }, i) => ({ layout, buffer: loaded.get(`${i}`)! }))
})

interface Loaded {
  readonly layout: Layout.Layout
  readonly buffer: Binding
}

/** The value of a formula over a tensor on the device and another input. */
const compute = Effect.fn("compute")(function*(
  { buffer: weights, layout }: Loaded,
  input: Float32Array | Uint32Array,
  formula: (words: Tensor, input: Tensor) => Tensor
) {
  const device = yield* Device
  const arena = new Arena()
  const result = formula(
    buffer(arena, 0, { shape: [layout.words], dtype: DType.u32 }),
    buffer(arena, 1, { shape: [input.length], dtype: input instanceof Float32Array ? DType.f32 : DType.u32 })
  )
  const out = buffer(arena, 2, { shape: result.shape, dtype: result.dtype })
  const given = yield* device.allocate(input.byteLength, "input")
  yield* device.write(given, new Uint8Array(input.buffer, input.byteOffset, input.byteLength))
  const bytes = 4 * result.shape.reduce<number>((n, d) => n * Number(d), 1)
  const target = yield* device.allocate(bytes, "out")
  const prepared = yield* (yield* Jit).prepare(
    make([assign(out, result)]).sink,
    new Map([[0, weights], [1, given], [2, target]])
  )
  yield* prepared.run({})
  return new Float32Array((yield* device.read(target)).slice().buffer, 0, bytes / 4)
})

const nothing = new Uint32Array(4)

const values = (loaded: Loaded) => compute(loaded, nothing, (words) => Layout.dequantise(loaded.layout, words))

/** Every recorded value of a type, in rows of different lengths, and its matrix times a vector. */
const vectors = Effect.fn("vectors")(function*(type: GgufType.Name, entry: Entry, compare: Compare) {
  const { blockBytes, blockValues } = GgufType.table[type]
  const { blocks, cols, offsets, rows, values: count } = entry
  const raw = bytesAt(entry, offsets.blocks, blocks * blockBytes)
  const expected = floatsAt(entry, offsets.values, count)
  const of = (shape: ReadonlyArray<number>) => {
    const blocks = shape.reduce((n, d) => n * d) / blockValues
    return { layout: Layout.layoutOf(type, shape), bytes: raw.subarray(0, blocks * blockBytes) }
  }
  // rows of an odd number of blocks share words of the planes
  const shortRow = blockValues === 1 ? 5 : 3 * blockValues
  // the vectors of rare types have fewer blocks
  const expertRows = count < 12 * shortRow ? 1 : 3
  const longRow = 8 * Math.max(blockValues, 4)
  const [all, long, experts, matrix] = yield* load([
    of([count]),
    of([Math.floor(count / longRow), longRow]),
    of([4, expertRows, shortRow]),
    {
      layout: Layout.layoutOf(type, [rows, cols]),
      bytes: bytesAt(entry, offsets.matrix, rows * cols / blockValues * blockBytes)
    }
  ])
  compare(yield* values(all!), expected)
  compare(yield* values(long!), expected.subarray(0, Math.floor(count / longRow) * longRow))
  const chosen = Uint32Array.of(3, 0, 3)
  const some = yield* compute(experts!, chosen, (words, ids) => Layout.dequantise(experts!.layout, words, ids))
  compare(
    some,
    Float32Array.from(
      Array.from(chosen).flatMap((id) =>
        Array.from(expected.subarray(id * expertRows * shortRow, (id + 1) * expertRows * shortRow))
      )
    )
  )
  const x = floatsAt(entry, offsets.x, cols)
  const y = floatsAt(entry, offsets.y, rows)
  const product = yield* compute(matrix!, x, (words, vector) => {
    const { rowRank, values } = Layout.decode(matrix!.layout, words)
    return contract(vector, values, rowRank)
  })
  assert.strictEqual(product.length, rows)
  const rms = Math.sqrt(y.reduce((sum, v) => sum + v * v, 0) / rows)
  // 1024 products of order 2^-5 of the result, added in float32 in any order: about 2^-24 * sqrt(1024) at worst
  const limit = 1e-5 * rms
  assert.deepEqual(differing(product, y, (a, b) => Math.abs(a - b) <= limit), [])
  if (!Layout.isInt8(matrix!.layout)) return
  const rounded = yield* compute(
    matrix!,
    x,
    (words, vector) => Int8.contract(Int8.quantise(vector), Layout.decodeInt8(matrix!.layout, words))
  )
  const error = Math.sqrt(rounded.reduce((sum, v, i) => sum + (v - y[i]!) ** 2, 0) / rows)
  assert.isAtMost(error, 1.25 * entry.cpu_rms_err, "RMS error with activations of 8 bits")
  assert.isAbove(error, 0)
})

/** All halves and all bfloat16 numbers that are finite, and MXFP4 with all scales whose values are. */
const everyNumber = Effect.fn("everyNumber")(function*(compare: Compare) {
  const patterns = Uint16Array.from({ length: 2 ** 16 }, (_, i) => i)
  const halves = patterns.filter((h) => (h & 0x7c00) !== 0x7c00)
  const brains = patterns.filter((b) => (b & 0x7f80) !== 0x7f80)
  const scales = Array.from({ length: 252 }, (_, i) => i)
  // the 16 codes in order, as low and as high halves of bytes
  const codes = Array.from({ length: 16 }, (_, i) => i | (15 - i) << 4)
  const fours = Uint8Array.from(scales.flatMap((scale) => [scale, ...codes]))
  const [f16, bf16, mxfp4] = yield* load([
    { layout: Layout.layoutOf("F16", [halves.length]), bytes: new Uint8Array(halves.buffer) },
    { layout: Layout.layoutOf("BF16", [brains.length]), bytes: new Uint8Array(brains.buffer) },
    { layout: Layout.layoutOf("MXFP4", [scales.length, 32]), bytes: fours }
  ])
  const float16 = new Float16Array(halves.buffer)
  compare(yield* values(f16!), Float32Array.from(float16))
  compare(yield* values(bf16!), new Float32Array(Uint32Array.from(brains, (b) => b << 16).buffer))
  const four = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
  const signed = [...four, ...four.map((v) => v === 0 ? 0 : -v)]
  compare(
    yield* values(mxfp4!),
    Float32Array.from(scales.flatMap((scale) => [...signed, ...signed.toReversed()].map((v) => v * 2 ** (scale - 127))))
  )
})

/** The tests of a device. */
export const test = (device: Devices.Choice, compare: Compare): void => {
  it("every type of the vectors has a layout", () => {
    assert.deepEqual(entries.map(([type]) => type).toSorted(), Layout.types.toSorted())
  })
  for (const [type, entry] of entries) {
    it.live(
      type,
      () => vectors(type, entry, compare).pipe(Effect.scoped, Effect.provide(Devices.layer(device)))
    )
  }
  it.live(
    "all finite F16, BF16 and MXFP4 numbers",
    () => everyNumber(compare).pipe(Effect.scoped, Effect.provide(Devices.layer(device)))
  )
}
