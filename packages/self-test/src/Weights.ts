/** Weights of each type: loaded, unpacked bit for bit, and multiplied, with floats and with bytes. */
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import * as ActivationPolicy from "@tg/engine/ActivationPolicy"
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
import { type Case, WrongResult } from "./Case.ts"
import * as Vectors from "./Vectors.ts"

interface Loaded {
  readonly layout: Layout.Layout
  readonly buffer: Binding
}

/** A tensor on the device, as the loader puts it there. */
const load = Effect.fnUntraced(function*(layout: Layout.Layout, bytes: Uint8Array) {
  const name = `${layout.type} ${layout.shape.join("x")}`
  const tensor = { name, type: layout.type, dims: layout.shape.toReversed(), offset: 0, bytes: bytes.length }
  const loaded = yield* Loader.load(fromBytes(name, bytes), [{ layout, tensor }])
  const found: Loaded = { layout, buffer: loaded.get(name)! }
  return found
})

/** The value of a formula over the tensor and a vector. */
const compute = Effect.fnUntraced(function*(
  { buffer: weights, layout }: Loaded,
  vector: Float32Array,
  formula: (words: Tensor, vector: Tensor) => Tensor
) {
  const device = yield* Device
  const arena = new Arena()
  const result = formula(
    buffer(arena, 0, { shape: [layout.words], dtype: DType.u32 }),
    buffer(arena, 1, { shape: [vector.length], dtype: DType.f32 })
  )
  const out = buffer(arena, 2, { shape: result.shape, dtype: result.dtype })
  const given = yield* device.allocate(vector.byteLength, "a vector of the self-test")
  yield* device.write(given, new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength))
  const bytes = 4 * result.shape.reduce<number>((n, d) => n * Number(d), 1)
  const target = yield* device.allocate(bytes, "a result of the self-test")
  const prepared = yield* (yield* Jit).prepare(
    make([assign(out, result)]).sink,
    new Map<number, Binding>([[0, weights], [1, given], [2, target]])
  )
  yield* prepared.run({})
  return new Float32Array((yield* device.read(target)).slice().buffer, 0, bytes / 4)
})

/** The smallest normal number: below it a device may count anything as zero. */
const smallestNormal = 2 ** -126
const ulp = (x: number): number => 2 ** (Math.floor(Math.log2(Math.max(Math.abs(x), smallestNormal))) - 23)

/** Fails at the first value that is further off than is allowed. */
const compare = (
  what: string,
  found: Float32Array,
  { expected, isRight }: {
    readonly expected: Float32Array
    readonly isRight: (found: number, expected: number) => boolean
  }
) => {
  const at = expected.findIndex((value, i) => !isRight(found[i]!, value))
  return at < 0
    ? Effect.void
    : Effect.fail(new WrongResult({ message: `${what}: value ${at} is ${found[at]}, not ${expected[at]}` }))
}

/** One rounding for an addition that is joined to a multiplication, and zero for a product of a subnormal number. */
const isUnpacked = (found: number, expected: number): boolean =>
  Math.abs(found - expected) <= ulp(expected) || (found === 0 && Math.abs(expected) < 16 * smallestNormal)

const rmsOf = (values: Float32Array): number =>
  Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length)

const check = Effect.fnUntraced(function*(vectors: Vectors.Vectors, recorded: Vectors.Type) {
  const { cols, count, rmsError, rows } = recorded
  const type = recorded.type as GgufType.Name
  const { blockBytes, blockValues } = GgufType.table[type]
  const bytesOf = (at: number, values: number) => Vectors.bytesAt(vectors, at, values / blockValues * blockBytes)
  const some = yield* load(Layout.layoutOf(type, [count]), bytesOf(recorded.blocks, count))
  const values = yield* compute(some, new Float32Array(4), (words) => Layout.dequantise(some.layout, words))
  yield* compare("unpacked", values, {
    expected: Vectors.floatsAt(vectors, recorded.values, count),
    isRight: isUnpacked
  })
  const matrix = yield* load(Layout.layoutOf(type, [rows, cols]), bytesOf(recorded.matrix, rows * cols))
  const x = Vectors.floatsAt(vectors, recorded.x, cols)
  const expected = Vectors.floatsAt(vectors, recorded.y, rows)
  const product = yield* compute(matrix, x, (words, vector) => {
    const { rowRank, values } = Layout.decode(matrix.layout, words)
    return contract(vector, values, rowRank)
  })
  // a thousand products, added in float32 in any order
  const limit = 1e-5 * rmsOf(expected)
  yield* compare("product", product, { expected, isRight: (a, b) => Math.abs(a - b) <= limit })
  const { profile } = yield* Device
  if (!Layout.isInt8(matrix.layout) || ActivationPolicy.activationsOn(profile) === "float") return
  const rounded = yield* compute(
    matrix,
    x,
    (words, vector) => Int8.contract(Int8.quantise(vector), Layout.decodeInt8(matrix.layout, words))
  )
  const error = rmsOf(rounded.map((value, i) => value - expected[i]!))
  // of a few rows the error of llama.cpp's whole matrix is no close bound
  if (error <= 4 * rmsError) return
  return yield* new WrongResult({ message: `product with bytes: off by ${error}, at most ${4 * rmsError} is allowed` })
})

/** All finite halves: where the renderer was told that the device's instruction keeps subnormal ones, it has to. */
const halves = Effect.gen(function*() {
  const finite = Array.from({ length: 2 ** 16 }, (_, bits) => bits).filter((bits) => (bits & 0x7c00) !== 0x7c00)
  const words = Uint16Array.from(finite)
  const some = yield* load(Layout.layoutOf("F16", [words.length]), new Uint8Array(words.buffer))
  const found = yield* compute(some, new Float32Array(4), (words) => Layout.dequantise(some.layout, words))
  const expected = Float32Array.from(finite, valueOfHalf)
  yield* compare("unpacked", found, { expected, isRight: (a, b) => a === b })
})

/** The value of a finite half: ten bits of fraction, those of the smallest exponent without a leading one. */
const valueOfHalf = (bits: number): number => {
  const exponent = (bits >> 10) & 31
  const magnitude = ((bits & 1023) + (exponent === 0 ? 0 : 1024)) * 2 ** (Math.max(1, exponent) - 25)
  return bits >> 15 === 0 ? magnitude : -magnitude
}

/** The cases. */
export const cases = (vectors: Vectors.Vectors): ReadonlyArray<Case> => [
  { family: "weights", name: "halves", check: halves },
  ...vectors.index.types.map((recorded): Case => ({
    family: "weights",
    name: recorded.type,
    check: check(vectors, recorded)
  }))
]
