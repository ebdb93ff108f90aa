/** Short loops are straight code, where that is the same. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { UOp } from "@tg/core-uop/UOp"
import { assert, describe, expect, it } from "@effect/vitest"
import * as Wasm from "../src/Wasm.ts"
import { execute } from "./support/execute.ts"
import { kernel } from "./support/linear.ts"

const count = (linear: UOp, pattern: RegExp): number => (String(Wasm.text("test", linear)).match(pattern) ?? []).length

it("are straight code, one in the other, with the order of their sums", () => {
  const linear = kernel((b) => {
    const [out, words] = [b.param(0), b.param(1, DType.u32)]
    const word = b.load(words, 0)
    const all = b.register(Expr.constant(b.arena, DType.f32, 0))
    b.loop(3, "REDUCE", (i) => {
      const some = b.register(Expr.constant(b.arena, DType.f32, 0.5))
      b.loop(4, "REDUCE", (j) => {
        const by = b.add(Expr.mul(Expr.cast(j, DType.u32), Expr.constant(b.arena, DType.u32, 8)))
        const byte = b.add(Expr.and(Expr.shr(word, by), Expr.constant(b.arena, DType.u32, 255)))
        const factor = b.add(Expr.cast(b.add(Expr.add(i, j)), DType.f32))
        b.accumulate("ADD", some, b.add(Expr.mul(b.add(Expr.cast(byte, DType.f32)), factor)))
      })
      b.accumulate("MAX", all, some)
    })
    b.store(out, 0, all)
  })
  const bytes = [7, 200, 0, 31]
  const word = bytes.reduce((sum, byte, i) => sum + byte * 2 ** (8 * i), 0)
  const sums = [0, 1, 2].map((i) => bytes.reduce((sum, byte, j) => sum + byte * (i + j), 0.5))
  assert.deepStrictEqual(
    execute(linear, [new Float32Array(1), Uint32Array.of(word)])[0],
    Float32Array.of(Math.max(...sums))
  )
  expect(count(linear, /\(loop /g)).toBe(0)
})

describe("short loops stay loops", () => {
  it("where they store, are long, or read what they accumulate", () => {
    const storing = kernel((b) => {
      const out = b.param(0)
      b.loop(4, "LOOP", (i) => b.store(out, i, b.add(Expr.cast(i, DType.f32))))
    })
    assert.deepStrictEqual(execute(storing, [new Float32Array(4)])[0], Float32Array.of(0, 1, 2, 3))
    expect(count(storing, /\(loop /g)).toBe(1)

    const doubling = kernel((b) => {
      const out = b.param(0)
      const sum = b.register(Expr.constant(b.arena, DType.f32, 1))
      b.loop(4, "REDUCE", () => b.accumulate("ADD", sum, b.add(Expr.mul(sum, 2))))
      b.store(out, 0, sum)
    })
    assert.deepStrictEqual(execute(doubling, [new Float32Array(1)])[0], Float32Array.of(81))
    expect(count(doubling, /\(loop /g)).toBe(1)

    const same = kernel((b) => {
      const [out, from] = [b.param(0), b.param(1)]
      const one = b.load(from, 0)
      const sum = b.register(Expr.constant(b.arena, DType.f32, 0))
      b.loop(3, "REDUCE", () => b.accumulate("ADD", sum, one))
      b.store(out, 0, sum)
    })
    assert.deepStrictEqual(execute(same, [new Float32Array(1), Float32Array.of(5)])[0], Float32Array.of(15))
  })

  it("where two longer loops want the same value", () => {
    const linear = kernel((b) => {
      const [out, from] = [b.param(0), b.param(1)]
      const sum = b.register(Expr.constant(b.arena, DType.f32, 0))
      for (const _ of [0, 1]) {
        b.loop(8, "REDUCE", () => {
          b.loop(2, "REDUCE", (i) => b.accumulate("ADD", sum, b.load(from, i)))
        })
      }
      b.store(out, 0, sum)
    })
    assert.deepStrictEqual(execute(linear, [new Float32Array(1), Float32Array.of(3, 4)])[0], Float32Array.of(112))
    expect(count(linear, /\(loop /g)).toBe(4)
  })
})
