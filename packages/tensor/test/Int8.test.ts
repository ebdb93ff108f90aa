import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { Arena } from "@tg/core-uop/UOp"
import * as Int8 from "@tg/tensor/Int8"
import { buffer } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"

const quantised = (values: Float32Array, shape: ReadonlyArray<number>): Uint32Array => {
  const arena = new Arena()
  const x = buffer(arena, 0, { shape, dtype: DType.f32 })
  return evaluate([Int8.quantise(x).node], { buffers: new Map([[x.node, values]]) })[0]!.data as Uint32Array
}

/** To the nearest integer, halves to the even one. */
const roundToEven = (x: number): number => {
  const down = Math.floor(x)
  return x - down > 0.5 || (x - down === 0.5 && down % 2 !== 0) ? down + 1 : down
}

/** A block as `quantise` says it is, without tensors. */
const blockOf = (x: Float32Array): ReadonlyArray<number> => {
  const scale = Math.fround(x.reduce((m, v) => Math.max(m, Math.abs(v)), 0) * Math.fround(1 / 127))
  const inverse = scale === 0 ? 0 : Math.fround(1 / scale)
  const q = Array.from(x, (v) => roundToEven(Math.fround(v * inverse)))
  const words = Array.from(
    { length: 8 },
    (_, j) => [0, 1, 2, 3].reduce((word, b) => word + (q[16 * (j >> 2) + 4 * b + (j & 3)]! & 255) * 2 ** (8 * b), 0)
  )
  const sum = (from: number, to: number): number => q.slice(from, to).reduce((a, b) => a + b, 0) >>> 0
  return [...words, new Uint32Array(Float32Array.of(scale).buffer)[0]!, sum(0, 32), sum(0, 16), sum(16, 32)]
}

describe("quantise", () => {
  const values = Float32Array.from({ length: 8 * 32 }, (_, i) => {
    const block = i >> 5
    const wave = Math.sin(i * i) * 2 ** (3 * block - 12)
    // a block of zeros, and one in which quotients lie in the middle of two integers
    return block === 3 ? 0 : block === 4 ? (i % 32 === 0 ? 127 : (i % 32) - 15.5) : wave
  })

  it("rounds to the nearest 127th of a block's largest magnitude", () => {
    const expected = Array.from({ length: 8 }, (_, b) => blockOf(values.subarray(32 * b, 32 * b + 32))).flat()
    expect(Array.from(quantised(values, [2, 2, 64]))).toEqual(expected)
  })

  it("gives a block that is not finite an infinite scale, whatever else it holds", () => {
    for (const bad of [NaN, Infinity, -Infinity]) {
      for (const at of [0, 13, 31]) {
        const x = Float32Array.from({ length: 64 }, (_, i) => i === 32 + at ? bad : i)
        const words = quantised(x, [64])
        expect(new Float32Array(words.buffer, 4 * (12 + 8), 1)[0]).toBe(Infinity)
        expect(Array.from(words.subarray(0, 12))).toEqual(blockOf(x.subarray(0, 32)))
      }
    }
  })

  it("counts a block of numbers near the smallest as zeros", () => {
    expect(Array.from(quantised(new Float32Array(32).fill(1e-38), [32]).subarray(0, 8))).toEqual(Array(8).fill(0))
  })

  it("gives the same in parts", () => {
    const arena = new Arena()
    const x = buffer(arena, 0, { shape: [2, 128], dtype: DType.f32 })
    const { quants, scale, sums } = Int8.blocks(x)
    const parts = [quants, scale.bitcast(DType.u32), sums(1).bitcast(DType.u32), sums(2).bitcast(DType.u32)]
    const found = evaluate(parts.map(({ node }) => node), { buffers: new Map([[x.node, values]]) })
      .map((value) => Array.from(value!.data))
    const records = Array.from({ length: 8 }, (_, b) => blockOf(values.subarray(32 * b, 32 * b + 32)))
    for (const [i, [from, to]] of ([[0, 8], [8, 9], [9, 10], [10, 12]] as const).entries()) {
      expect(found[i]).toEqual(records.flatMap((record) => record.slice(from, to)))
    }
  })

  it("refuses what has no blocks", () => {
    const arena = new Arena()
    expect(() => Int8.quantise(buffer(arena, 0, { shape: [4, 33], dtype: DType.f32 }))).toThrow(/multiple of 32/)
    expect(() => Int8.quantise(buffer(arena, 0, { shape: [32], dtype: DType.u32 }))).toThrow(/f32/)
  })
})
