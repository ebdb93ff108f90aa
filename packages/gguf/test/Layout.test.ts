import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Spec from "@tg/core-uop/Spec"
import { Arena } from "@tg/core-uop/UOp"
import * as GgufType from "@tg/gguf/GgufType"
import * as Layout from "@tg/gguf/Layout"
import * as Int8 from "@tg/tensor/Int8"
import { contract } from "@tg/tensor/Nn"
import { assign, make } from "@tg/tensor/Program"
import { buffer, type Tensor } from "@tg/tensor/Tensor"
import { readFileSync } from "node:fs"
import { describe, expect, it } from "vitest"

interface Entry {
  readonly file: Uint8Array
  readonly blocks: number
  readonly values: number
  readonly rows: number
  readonly cols: number
  readonly offsets: { readonly [K in "blocks" | "values" | "matrix" | "x" | "y"]: number }
}
/** Vectors of the usual types, and of the rare ones. */
const vectors = ["dequant", "dequant-rare"].map((name) => {
  const folder = new URL(`../../../test/vectors/${name}/`, import.meta.url)
  const index = JSON.parse(readFileSync(new URL("index.json", folder), "utf8")) as {
    readonly types: Readonly<Record<GgufType.Name, Omit<Entry, "file">>>
  }
  return { index, file: readFileSync(new URL("vectors.bin", folder)) }
})
const entries = vectors.flatMap(({ file, index }) =>
  Object.entries(index.types).map(([type, entry]) => [type as GgufType.Name, { ...entry, file }] as const)
)
const bytesAt = ({ file }: Entry, offset: number, length: number): Uint8Array =>
  Uint8Array.from(file.subarray(offset, offset + length))
const floatsAt = (entry: Entry, offset: number, count: number): Float32Array =>
  new Float32Array(bytesAt(entry, offset, 4 * count).buffer)

const wordsOf = (bytes: Uint8Array): Uint32Array => {
  const words = new Uint32Array(Math.ceil(bytes.length / 4))
  new Uint8Array(words.buffer).set(bytes)
  return words
}

/** Lays raw blocks out, in runs of `run` blocks, into one buffer. */
const laidOut = (layout: Layout.Layout, raw: Uint8Array, run = layout.blocks): Uint32Array => {
  const { blockBytes } = GgufType.table[layout.type]
  const out = new Uint32Array(layout.words)
  out.set(Layout.bookOf(layout) ?? [], layout.bookOffset)
  for (let first = 0; first < layout.blocks; first += run) {
    const count = Math.min(run, layout.blocks - first)
    const words = wordsOf(raw.subarray(first * blockBytes, (first + count) * blockBytes))
    const arena = new Arena()
    const source = buffer(arena, 0, { shape: [words.length], dtype: DType.u32 })
    const target = buffer(arena, 1, { shape: [layout.words], dtype: DType.u32 })
    const program = make(
      Layout.relayout(layout, source, { first, count }).map((p) =>
        assign(target.slice(0, p.offset, p.words.dim(0)), p.words)
      )
    )
    expect(Spec.check("tensor", program.sink)).toEqual([])
    evaluate([program.sink], { buffers: new Map([[source.node, words], [target.node, out]]) })
  }
  return out
}

/** The value of a formula over the laid out words (and other inputs). */
const evaluated = (
  words: Uint32Array,
  formula: (words: Tensor, input: (data: Float32Array | Uint32Array) => Tensor) => Tensor
): Float32Array => {
  const arena = new Arena()
  const source = buffer(arena, 0, { shape: [words.length], dtype: DType.u32 })
  const buffers = new Map([[source.node, words as Float32Array | Uint32Array]])
  const result = formula(source, (data) => {
    const dtype = data instanceof Float32Array ? DType.f32 : DType.u32
    const x = buffer(arena, buffers.size, { shape: [data.length], dtype })
    buffers.set(x.node, data)
    return x
  })
  const out = buffer(arena, 99, { shape: result.shape, dtype: result.dtype })
  expect(Spec.check("tensor", make([assign(out, result)]).sink)).toEqual([])
  return evaluate([result.node], { buffers })[0]!.data as Float32Array
}

/** Bit for bit, except that any NaN equals any other: their payloads do not survive every float register. */
const expectSameBits = (found: Float32Array, expected: Float32Array): void => {
  const a = new Uint32Array(found.buffer, found.byteOffset, found.length)
  const b = new Uint32Array(expected.buffer, expected.byteOffset, expected.length)
  expect(found.length).toBe(expected.length)
  const wrong = Array.from(a.keys()).filter((i) =>
    a[i] !== b[i] && !(Number.isNaN(found[i]) && Number.isNaN(expected[i]))
  )
  expect(wrong.slice(0, 5).map((i) => [i, found[i], expected[i]])).toEqual([])
}

/** To the nearest integer, halves to the even one. */
const roundToEven = (x: number): number => {
  const down = Math.floor(x)
  return x - down > 0.5 || (x - down === 0.5 && down % 2 !== 0) ? down + 1 : down
}

describe("every type", () => {
  it("of the vectors has a layout", () => {
    expect(entries.map(([type]) => type).toSorted()).toEqual(Layout.types.toSorted())
  })

  for (const [type, entry] of entries) {
    const { blockBytes, blockValues } = GgufType.table[type]
    const raw = bytesAt(entry, entry.offsets.blocks, entry.blocks * blockBytes)
    const values = floatsAt(entry, entry.offsets.values, entry.values)

    it(`${type}: one row of all blocks is decoded bit for bit`, () => {
      const layout = Layout.layoutOf(type, [entry.values])
      expectSameBits(evaluated(laidOut(layout, raw), (w) => Layout.dequantise(layout, w)), values)
    })

    it(`${type}: rows of 8 blocks, laid out in runs, are decoded bit for bit`, () => {
      const rows = Math.floor(entry.blocks / 8 / (blockValues === 1 ? 4 : 1))
      const blocksPerRow = blockValues === 1 ? 32 : 8
      const cols = blocksPerRow * blockValues
      const layout = Layout.layoutOf(type, [rows, cols])
      const words = laidOut(layout, raw.subarray(0, rows * blocksPerRow * blockBytes), layout.blockGroup * 13)
      expectSameBits(evaluated(words, (w) => Layout.dequantise(layout, w)), values.subarray(0, rows * cols))
    })

    it(`${type}: chosen experts of odd rows are decoded bit for bit`, () => {
      const blocksPerRow = blockValues === 1 ? 5 : 3
      const cols = blocksPerRow * blockValues
      // the vectors of rare types have fewer blocks
      const rows = entry.blocks < 12 * blocksPerRow ? 1 : 3
      const layout = Layout.layoutOf(type, [4, rows, cols])
      const words = laidOut(layout, raw.subarray(0, 4 * rows * blocksPerRow * blockBytes))
      const chosen = evaluated(words, (w, input) => Layout.dequantise(layout, w, input(Uint32Array.of(3, 0, 3))))
      const one = (i: number): ReadonlyArray<number> =>
        Array.from(values.subarray(i * rows * cols, (i + 1) * rows * cols))
      expectSameBits(chosen, Float32Array.from([...one(3), ...one(0), ...one(3)]))
    })

    it(`${type}: a product meets the reference to 1e-5`, () => {
      const { cols, rows } = entry
      const layout = Layout.layoutOf(type, [rows, cols])
      const matrix = bytesAt(entry, entry.offsets.matrix, rows * cols / blockValues * blockBytes)
      const y = evaluated(laidOut(layout, matrix), (w, input) => {
        const decoded = Layout.decode(layout, w)
        return contract(input(floatsAt(entry, entry.offsets.x, cols)), decoded.values, decoded.rowRank)
      })
      // outputs are of order 1; the evaluator rounds products to f32: about 1e-7 sqrt(1024) each
      floatsAt(entry, entry.offsets.y, rows).forEach((v, i) => expect(Math.abs(y[i]! - v)).toBeLessThan(1e-5))
    })
  }
})

describe("rows of bytes", () => {
  const quantised = entries.filter(([type]) => Layout.isInt8(Layout.layoutOf(type, [256])))

  it("exist for all but floating-point types", () => {
    const others = Layout.types.filter((type) => !quantised.some(([name]) => name === type))
    expect(others.toSorted()).toEqual(["BF16", "F16", "F32"])
  })

  /** Rows in float64 from their bytes, next to what `dequantise` gives. */
  const valuesOf = (layout: Layout.Layout, words: Uint32Array): ReadonlyArray<number> => {
    const arena = new Arena()
    const source = buffer(arena, 0, { shape: [words.length], dtype: DType.u32 })
    const rows = Layout.decodeInt8(layout, source)
    const parts = [rows.words, rows.scale, ...rows.minimum === undefined ? [] : [rows.minimum]]
    const [bytes, scale, minimum] = evaluate(parts.map((t) => t.node), {
      buffers: new Map([[source.node, words]]),
      float64: true
    }).map((v) => v!.data)
    const count = layout.shape.reduce((n, d) => n * d)
    const values = new Array<number>(count)
    const scalesPerBlock = scale!.length / (count / 32)
    for (let k = 0; k < count; k++) {
      const block = k >> 5
      const [h, b, w] = [(k >> 4) & 1, (k >> 2) & 3, k & 3]
      const quant = bytes![8 * block + 4 * h + w]! << (24 - 8 * b) >> 24
      const own = scalesPerBlock * block + (scalesPerBlock === 2 ? h : 0)
      values[k] = scale![own]! * (quant - rows.zero) - (minimum?.[own] ?? 0)
    }
    return values
  }

  for (const [type, entry] of quantised) {
    const { blockBytes, blockValues } = GgufType.table[type]
    it(`${type}: hold the values`, () => {
      // rows of 3 blocks share words of some planes
      for (const blocksPerRow of [3, 8]) {
        const cols = blocksPerRow * blockValues
        const rows = Math.floor(entry.blocks / blocksPerRow)
        const layout = Layout.layoutOf(type, [rows, cols])
        const words = laidOut(layout, bytesAt(entry, entry.offsets.blocks, rows * blocksPerRow * blockBytes))
        const found = valuesOf(layout, words)
        const expected = floatsAt(entry, entry.offsets.values, rows * cols)
        // exact but for the roundings of the expected value
        const wrong = Array.from(found.keys()).filter((i) =>
          Number.isFinite(expected[i]!) && !(Math.abs(found[i]! - expected[i]!) <= 2 ** -22 * Math.abs(expected[i]!))
        )
        expect(wrong.slice(0, 5).map((i) => [i, found[i], expected[i]])).toEqual([])
      }
    })

    it(`${type}: products differ from exact ones by what the activation was rounded`, () => {
      const { cols, rows } = entry
      const layout = Layout.layoutOf(type, [rows, cols])
      const words = laidOut(layout, bytesAt(entry, entry.offsets.matrix, rows * cols / blockValues * blockBytes))
      const x = floatsAt(entry, entry.offsets.x, cols)
      // the activation as it is after rounding, in plain JavaScript
      const rounded = Float32Array.from(x)
      for (let first = 0; first < cols; first += 32) {
        const scale = Math.fround(
          x.subarray(first, first + 32).reduce((m, v) => Math.max(m, Math.abs(v)), 0) * Math.fround(1 / 127)
        )
        for (let i = first; i < first + 32; i++) rounded[i] = scale * roundToEven(x[i]! / scale)
      }
      const exact = evaluated(words, (w, input) => {
        const { rowRank, values } = Layout.decode(layout, w)
        return contract(input(rounded), values, rowRank)
      })
      const found = evaluated(words, (w, input) => Int8.contract(Int8.quantise(input(x)), Layout.decodeInt8(layout, w)))
      const inPlace = evaluated(words, (w, input) => Int8.contract(Int8.blocks(input(x)), Layout.decodeInt8(layout, w)))
      expect(Array.from(inPlace)).toEqual(Array.from(found))
      // outputs are of order 1, sums of 1024 rounded products
      found.forEach((v, i) => expect(Math.abs(v - exact[i]!)).toBeLessThan(1e-5))
    })
  }
})

describe("layouts", () => {
  it("put planes at multiples of 4 words", () => {
    for (const type of Layout.types) {
      for (const rows of [1, 3, 8]) {
        const layout = Layout.layoutOf(type, [rows, 3 * GgufType.table[type].blockValues])
        expect(layout.words % 4, type).toBe(0)
        for (const plane of layout.planes) expect(plane.offset % 4, type).toBe(0)
      }
    }
  })

  it("keep four neighbours of a row in four words at one bit position", () => {
    const layout = Layout.layoutOf("Q4_0", [32])
    const raw = new Uint8Array(18)
    // value j is nibble j: low nibbles are 0..15, high ones 16..31 (modulo 16)
    for (let j = 0; j < 16; j++) raw[2 + j] = j | (j << 4)
    const words = laidOut(layout, raw)
    for (let j = 0; j < 32; j++) {
      const bit = 8 * ((j >> 2) & 3) + 4 * (j >> 4)
      expect((words[j & 3]! >>> bit) & 15).toBe(j & 15)
    }
  })

  it("add little to the file's size", () => {
    // a book of up to 16 KiB comes with each tensor
    const sizes = Layout.types.map((type) => {
      const { blockBytes, blockValues } = GgufType.table[type]
      return [type, Layout.layoutOf(type, [8192, 2048]).words * 4 / (8192 * 2048 / blockValues * blockBytes)] as const
    })
    const larger = sizes.filter(([, ratio]) => ratio > 1.02).map(([type, ratio]) => `${type} ${ratio.toFixed(2)}`)
      .toSorted()
    // seven bits of sign become eight, a digit of three 1.6 bits becomes two
    expect(larger).toEqual(["IQ2_XS 1.05", "IQ2_XXS 1.06", "IQ3_XXS 1.04", "TQ1_0 1.22"])
  })

  it("refuse what they cannot hold", () => {
    expect(() => Layout.layoutOf("Q4_0", [3, 33])).toThrow(/multiple of 32/)
    expect(() => Layout.layoutOf("I8", [256])).toThrow(/I8.*requantise/)
    const arena = new Arena()
    const layout = Layout.layoutOf("Q4_0", [64])
    const words = buffer(arena, 0, { shape: [3], dtype: DType.u32 })
    expect(() => Layout.dequantise(layout, words)).toThrow(/tensor's buffer/)
    expect(() => Layout.relayout(layout, words, { first: 1, count: 1 })).toThrow(/multiple of 2/)
  })
})
