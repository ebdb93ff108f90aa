/** What is loaded and wanted in all lanes goes into a vector at once; sums of products of bytes stay in their registers. */
import * as DType from "@tg/core-uop/DType"
import { dot4I8 } from "@tg/core-uop/EvaluateOps"
import * as Expr from "@tg/core-uop/Expr"
import type { UOp } from "@tg/core-uop/UOp"
import { assert, describe, expect, it } from "@effect/vitest"
import * as Wasm from "../src/Wasm.ts"
import { execute } from "./support/execute.ts"
import { kernel, type LinearBuilder } from "./support/linear.ts"

const lanes = 4
const words = Uint32Array.from({ length: 16 }, (_, i) => Math.imul(i + 3, 0x9e3779b1) >>> 0)
const u32 = (x: UOp, value: number): UOp => Expr.constant(x.arena, DType.u32, value)
const instructions = (linear: UOp, pattern: RegExp): ReadonlyArray<string> =>
  String(Wasm.text("test", linear, { simd: "words" })).match(pattern) ?? []

/** out[4 i + l] = f of word i, in all lanes l. */
const spread = (at: ReadonlyArray<number>, f: (word: UOp, b: LinearBuilder) => UOp): UOp =>
  kernel((b) => {
    const [out, w] = [b.param(0, DType.u32), b.param(1, DType.u32)]
    const values = at.map((i) => b.add(f(b.load(w, i), b)))
    for (const [i, x] of values.entries()) b.store(out, lanes * i, b.add(Expr.splat(x, lanes)))
  })

const expected = (at: ReadonlyArray<number>, f: (word: number) => number): Uint32Array =>
  Uint32Array.from({ length: lanes * at.length }, (_, i) => f(words[at[Math.floor(i / lanes)]!]!))

describe("words in all lanes", () => {
  const high = (word: UOp): UOp => Expr.and(Expr.shr(word, u32(word, 4)), u32(word, 0x0f0f0f0f))
  const highOf = (word: number): number => (word >>> 4) & 0x0f0f0f0f
  const out = (count: number) => new Uint32Array(lanes * count)

  it("are loaded into them, and unpacked there", () => {
    const linear = spread([5], high)
    assert.deepStrictEqual(execute(linear, [out(1), words])[0], expected([5], highOf))
    expect(instructions(linear, /v128\.load32_splat|i32x4\.splat|i32\.(and|shr_u)/g)).toEqual(["v128.load32_splat"])
  })

  it("are loaded together where they are neighbours, and unpacked once", () => {
    const at = [8, 9, 10, 11]
    const linear = spread(at, high)
    assert.deepStrictEqual(execute(linear, [out(4), words])[0], expected(at, highOf))
    expect(instructions(linear, /v128\.load\b|v128\.and|i32x4\.(shr_u|splat)|i8x16\.shuffle/g)).toEqual([
      "v128.and",
      "i32x4.shr_u",
      "v128.load",
      ...Array<string>(4).fill("i8x16.shuffle")
    ])
  })

  it("are as loaded, whatever order the loads have and whatever is done to each", () => {
    for (const at of [[3, 2, 1, 0], [0, 1, 2, 4], [1, 2, 3, 4, 5, 6, 7, 8, 9], [2, 2, 3, 4, 5]]) {
      const linear = spread(at, high)
      assert.deepStrictEqual(execute(linear, [out(at.length), words])[0], expected(at, highOf))
    }
    let n = 0
    const mixed = spread([0, 1, 2, 3], (word) => n++ % 2 === 0 ? high(word) : Expr.xor(word, u32(word, 7)))
    const [found] = execute(mixed, [out(4), words])
    assert.deepStrictEqual(
      [0, 4, 8, 12].map((i) => found[i]!),
      [0, 1, 2, 3].map((i) => i % 2 === 0 ? highOf(words[i]!) : (words[i]! ^ 7) >>> 0)
    )
  })

  it("are loaded again behind a store to their place", () => {
    const linear = kernel((b) => {
      const w = b.param(0, DType.u32)
      const first = b.add(high(b.load(w, 0)))
      b.store(w, 4, b.add(Expr.splat(first, lanes)))
      for (const i of [1, 2, 3, 4]) b.store(w, 4 + 4 * i, b.add(Expr.splat(b.add(high(b.load(w, i))), lanes)))
    })
    const memory = Uint32Array.of(...words, ...words)
    const [found] = execute(linear, [memory])
    const wanted = memory.slice()
    for (const i of [0, 1, 2, 3, 4]) wanted.fill(highOf(wanted[i]!), 4 + 4 * i, 8 + 4 * i)
    assert.deepStrictEqual(found, wanted)
  })

  it("are shifted by what a loop counts, in the loop", () => {
    const linear = kernel((b) => {
      const [out, w] = [b.param(0, DType.u32), b.param(1, DType.u32)]
      const loaded = [0, 1, 2, 3].map((i) => b.load(w, i))
      b.loop(4, "LOOP", (i) => {
        const by = b.add(Expr.mul(Expr.cast(i, DType.u32), u32(i, 8)))
        for (const [j, word] of loaded.entries()) {
          const value = b.add(Expr.splat(b.add(Expr.and(Expr.shr(word, by), u32(word, 255))), lanes))
          b.store(out, Expr.add(Expr.mul(i, 16), 4 * j), value)
        }
      })
    })
    const [found] = execute(linear, [new Uint32Array(64), words])
    const wanted = Uint32Array.from({ length: 64 }, (_, k) => (words[(k >> 2) % 4]! >>> (8 * (k >> 4))) & 255)
    assert.deepStrictEqual(found, wanted)
  })
})

it("adds products to a register by the instruction that multiplies, the same numbers without it", () => {
  const linear = kernel((b) => {
    const [out, x, w] = [b.param(0, DType.i32), b.param(1, DType.u32), b.param(2, DType.u32)]
    const sum = b.register(Expr.splat(Expr.constant(b.arena, DType.i32, 5), lanes))
    b.loop(4, "REDUCE", (i) => {
      const at = b.add(Expr.mul(i, lanes))
      const narrow = Expr.and(
        b.load(w, at, { lanes }),
        Expr.splat(Expr.constant(b.arena, DType.u32, 0x0f0f0f0f), lanes)
      )
      b.accumulate("ADD", sum, b.add(Expr.alu("DOT4I8", b.load(x, at, { lanes }), narrow)))
    })
    b.store(out, 0, sum)
  })
  const x = words.map((word) => ~word)
  const wanted = Int32Array.from(
    [0, 1, 2, 3],
    (lane) =>
      [0, 1, 2, 3].reduce((sum, i) => sum + dot4I8(x[4 * i + lane]!, (words[4 * i + lane]! & 0x0f0f0f0f) >>> 0), 5)
  )
  for (const simd of ["plain", "words", "pairs"] as const) {
    assert.deepStrictEqual(execute(linear, [new Int32Array(4), x, words], [], { simd })[0], wanted)
  }
  expect(instructions(linear, /i32x4\.(add|relaxed\w+)/g)).toEqual(
    Array<string>(4).fill("i32x4.relaxed_dot_i8x16_i7x16_add_s")
  )
})
