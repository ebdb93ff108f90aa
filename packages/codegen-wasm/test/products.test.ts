/** Products of bytes: straight code; sums that start with what is taken from them; halves of several words in one conversion; sums beside what they share. */
import * as DType from "@tg/core-uop/DType"
import { dot4I8, halfToFloat } from "@tg/core-uop/EvaluateOps"
import * as Expr from "@tg/core-uop/Expr"
import type { UOp } from "@tg/core-uop/UOp"
import { assert, describe, expect, it } from "@effect/vitest"
import * as Wasm from "../src/Wasm.ts"
import { execute } from "./support/execute.ts"
import { kernel, type LinearBuilder } from "./support/linear.ts"

const lanes = 4
const count = (linear: UOp, pattern: RegExp): number =>
  (String(Wasm.text("test", linear, { simd: "words" })).match(pattern) ?? []).length
const vector = (b: LinearBuilder, dtype: DType.DType, value: number): UOp =>
  Expr.splat(Expr.constant(b.arena, dtype, value), lanes)
const scalar = (b: LinearBuilder, value: number): UOp => Expr.constant(b.arena, DType.u32, value)

const words = Uint32Array.from({ length: 64 }, (_, i) => Math.imul(i + 3, 0x9e3779b1) >>> 0)
const rows = 2
const blocks = 5
const low = 0x0f0f0f0f

/**
 * Blocks of two halves of two words each, for two rows: in `weights` a word for each row, block, half and word, then a word of two scales
 * for each row and block. `taken` is what each sum loses.
 */
const product = (taken: (b: LinearBuilder, half: UOp) => UOp): UOp =>
  kernel((b) => {
    const [out, weights, x] = [b.param(0), b.param(1, DType.u32), b.param(2, DType.u32)]
    const sums = Array.from({ length: rows }, () => b.register(vector(b, DType.f32, 0)))
    b.loop(blocks, "REDUCE", (block) => {
      const scales = sums.map((_, row) => b.load(weights, b.add(Expr.add(block, rows * blocks * 4 + row * blocks))))
      b.loop(2, "REDUCE", (half) => {
        const inner = sums.map(() => b.register(vector(b, DType.i32, 0)))
        b.loop(2, "REDUCE", (word) => {
          const at = b.add(Expr.add(Expr.add(Expr.mul(block, 4), Expr.mul(half, 2)), word))
          const activations = b.load(x, b.add(Expr.mul(at, lanes)), { lanes })
          for (const [row, sum] of inner.entries()) {
            const masked = b.add(Expr.and(b.load(weights, b.add(Expr.add(at, row * blocks * 4))), scalar(b, low)))
            b.accumulate("ADD", sum, b.add(Expr.alu("DOT4I8", activations, b.add(Expr.splat(masked, lanes)))))
          }
        })
        const by = b.add(Expr.mul(Expr.cast(half, DType.u32), scalar(b, 16)))
        const loss = b.add(taken(b, half))
        for (const [row, sum] of inner.entries()) {
          const bits = b.add(Expr.and(Expr.shr(scales[row]!, by), scalar(b, 0xffff)))
          const scale = b.add(Expr.splat(b.add(Expr.alu("HALF_TO_FLOAT", bits)), lanes))
          b.accumulate("ADD", sums[row]!, b.add(Expr.mul(Expr.cast(Expr.sub(sum, loss), DType.f32), scale)))
        }
      })
    })
    for (const [row, sum] of sums.entries()) b.store(out, lanes * row, sum)
  })

/** Small halves of both signs, a subnormal and an infinite one among them. */
const scaleBits = [0x3c00, 0xb800, 0x0001, 0x8400, 0x4000, 0x3555]
const weightsOf = (bits: ReadonlyArray<number>): Uint32Array => {
  const scales = Array.from(
    { length: rows * blocks },
    (_, i) => (bits[2 * i % 6]! | bits[(2 * i + 1) % 6]! << 16) >>> 0
  )
  return Uint32Array.of(...words.subarray(0, rows * blocks * 4), ...scales)
}
const x = Uint32Array.from({ length: blocks * 4 * lanes }, (_, i) => Math.imul(i + 7, 0x85ebca6b) >>> 0)

const expected = (weights: Uint32Array, loss: (half: number, lane: number) => number): Float32Array =>
  Float32Array.from({ length: rows * lanes }, (_, i) => {
    const [row, lane] = [Math.floor(i / lanes), i % lanes]
    let sum = 0
    for (let block = 0; block < blocks; block++) {
      for (const half of [0, 1]) {
        let inner = 0
        for (const word of [0, 1]) {
          const at = 4 * block + 2 * half + word
          inner += dot4I8(x[at * lanes + lane]!, (weights[at + row * blocks * 4]! & low) >>> 0)
        }
        const scale = halfToFloat(weights[rows * blocks * 4 + row * blocks + block]! >>> (16 * half) & 0xffff)
        sum = Math.fround(sum + Math.fround(Math.fround(inner - loss(half, lane)) * scale))
      }
    }
    return sum
  })

describe("a product of two rows of blocks", () => {
  const linear = product((b, half) =>
    b.add(Expr.mul(Expr.bitcast(b.load(b.param(2, DType.u32), b.add(Expr.mul(half, lanes)), { lanes }), DType.i32), 8))
  )
  const loss = (half: number, lane: number): number => Math.imul(x[half * lanes + lane]!, 8)

  it("has the bits of its loops, with each way to multiply", () => {
    for (const bits of [scaleBits, [0x7c00, 0x3c00, 0xfc00, 0x3c00, 0x3c00, 0x03ff]]) {
      const weights = weightsOf(bits)
      for (const simd of ["plain", "words", "pairs"] as const) {
        const [found] = execute(linear, [new Float32Array(rows * lanes), weights, x], [], { simd })
        assert.deepStrictEqual(found, expected(weights, loss))
      }
    }
  })

  it("is one loop over blocks, with one conversion and no subtraction of words", () => {
    expect(count(linear, /\(loop /g)).toBe(1)
    expect(count(linear, /relaxed_dot/g)).toBe(2 * 2 * rows)
    expect(count(linear, /f32x4\.pmin|v128\.const f32x4 5\.19/g)).toBe(1)
    expect(count(linear, /i32x4\.sub/g)).toBe(0)
    expect(count(linear, /i32x4\.neg/g)).toBe(2)
  })
})

it("sums that share a load follow it, and floats keep their order", () => {
  const linear = kernel((b) => {
    const [out, from] = [b.param(0), b.param(1)]
    const sums = [0, 1].map((row) => b.register(vector(b, DType.f32, row)))
    const shared = [0, 1, 2].map((i) => b.load(from, lanes * i, { lanes }))
    for (const [row, sum] of sums.entries()) {
      for (const x of shared) b.accumulate("ADD", sum, b.add(Expr.mul(x, vector(b, DType.f32, 0.1 + row))))
    }
    for (const [row, sum] of sums.entries()) b.store(out, lanes * row, sum)
  })
  const from = Float32Array.from({ length: 3 * lanes }, (_, i) => 1 / (i + 3))
  const [found] = execute(linear, [new Float32Array(2 * lanes), from])
  const factors = [0.1, 1.1].map(Math.fround)
  assert.deepStrictEqual(
    found,
    Float32Array.from({ length: 2 * lanes }, (_, i) =>
      [0, 1, 2].reduce(
        (sum, j) => Math.fround(sum + Math.fround(from[lanes * j + i % lanes]! * factors[Math.floor(i / lanes)]!)),
        Math.floor(i / lanes)
      ))
  )
  const order = (String(Wasm.text("test", linear)).match(/v128\.load|f32x4\.mul/g) ?? []).join(" ")
  expect(order).toBe(Array(3).fill("v128.load f32x4.mul f32x4.mul").join(" "))
})

it("a sum that another one is added to waits for it", () => {
  const linear = kernel((b) => {
    const [out, from] = [b.param(0), b.param(1)]
    const [all, some] = [b.register(vector(b, DType.f32, 0)), b.register(vector(b, DType.f32, 0))]
    for (const i of [0, 1]) {
      b.accumulate("ADD", some, b.add(Expr.mul(b.load(from, lanes * i, { lanes }), vector(b, DType.f32, 2))))
    }
    b.accumulate("ADD", all, some)
    b.store(out, 0, all)
  })
  const from = Float32Array.from({ length: 2 * lanes }, (_, i) => i)
  assert.deepStrictEqual(execute(linear, [new Float32Array(lanes), from])[0], Float32Array.of(8, 12, 16, 20))
})
