import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { Arena } from "@tg/core-uop/UOp"
import { buffer } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import * as GgufType from "../src/GgufType.ts"
import * as Layout from "../src/Layout.ts"
import * as RandomBlocks from "../src/RandomBlocks.ts"

const cols = 512
const rows = 16

/** The values of a matrix of random blocks. */
const valuesOf = (type: GgufType.Name, options: { readonly mean: number; readonly deviation: number }) => {
  const { blockBytes, blockValues } = GgufType.table[type]
  const blocks = rows * cols / blockValues
  const raw = new ArrayBuffer(Math.ceil(blocks * blockBytes / 4) * 4 + 4)
  RandomBlocks.make({ type, ...options, seed: [1, "weights"] })!.next(raw, blocks)
  const words = new Uint32Array(raw, 0, Math.ceil(blocks * blockBytes / 4))
  const layout = Layout.layoutOf(type, [rows, cols])
  const arena = new Arena()
  const source = buffer(arena, 0, { shape: [words.length], dtype: DType.u32 })
  const planes = new Uint32Array(layout.words)
  planes.set(Layout.bookOf(layout) ?? [], layout.bookOffset)
  for (const { offset, words: plane } of Layout.relayout(layout, source)) {
    planes.set(evaluate([plane.node], { buffers: new Map([[source.node, words]]) })[0]!.data as Uint32Array, offset)
  }
  const laid = buffer(arena, 1, { shape: [layout.words], dtype: DType.u32 })
  const values = Layout.dequantise(layout, laid)
  return evaluate([values.node], { buffers: new Map([[laid.node, planes]]) })[0]!.data as Float32Array
}

const moments = (values: Float32Array) => {
  const mean = values.reduce((sum, x) => sum + x, 0) / values.length
  return { mean, deviation: Math.sqrt(values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / values.length) }
}

const first = (type: GgufType.Name, seed: readonly [number, string]): string => {
  const made = RandomBlocks.make({ type, mean: 0, deviation: 0.02, seed })!
  return Buffer.from(made.next(new ArrayBuffer(1028), 4)).toString("hex")
}

describe("RandomBlocks", () => {
  it("makes all types that have a layout", () => {
    expect(Layout.types.filter((type) => !RandomBlocks.types.includes(type))).toEqual([])
    expect(RandomBlocks.make({ type: "I8", mean: 0, deviation: 1, seed: [1, ""] })).toBeUndefined()
  })

  it.each(RandomBlocks.types)("%s: values around zero, of the deviation that is asked for", (type) => {
    const found = moments(valuesOf(type, { mean: 0, deviation: 0.022 }))
    // 8192 values in as few as 32 blocks, whose scales deviate by a quarter; MXFP4 has powers of two only
    const tolerance = type === "MXFP4" ? 0.5 : 0.2
    expect(Math.abs(found.deviation / 0.022 - 1)).toBeLessThan(tolerance)
    expect(Math.abs(found.mean)).toBeLessThan(0.004)
  })

  it("F32 values have the mean that is asked for", () => {
    const found = moments(valuesOf("F32", { mean: 1, deviation: 0.15 }))
    // the error of the mean of 8192 values is 0.15 / 90
    expect(Math.abs(found.mean - 1)).toBeLessThan(0.01)
  })

  it("equal seeds give equal blocks; other seeds and names give others", () => {
    expect(first("Q4_K", [1, "a"])).toBe(first("Q4_K", [1, "a"]))
    const distinct = [
      first("Q4_K", [1, "a"]),
      first("Q4_K", [2, "a"]),
      first("Q4_K", [1, "b"]),
      first("Q4_K", [2 ** 32 + 1, "a"])
    ]
    expect(new Set(distinct).size).toBe(4)
  })

  it("goes on where it stopped", () => {
    const made = RandomBlocks.make({ type: "Q4_0", mean: 0, deviation: 0.02, seed: [1, "a"] })!
    const buffer = new ArrayBuffer(22)
    const blocks = Array.from({ length: 3 }, () => Buffer.from(made.next(buffer, 1)).toString("hex"))
    expect(blocks.map((block) => block.length)).toEqual([36, 36, 36])
    expect(new Set(blocks).size).toBe(3)
  })
})
