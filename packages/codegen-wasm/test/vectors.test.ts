/** Vectors that are put together, taken apart and shifted lane by lane. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { UOp } from "@tg/core-uop/UOp"
import { assert, describe, expect, it } from "@effect/vitest"
import { f32, text, u32 } from "./support/elements.ts"
import { execute } from "./support/execute.ts"
import { kernel, type LinearBuilder } from "./support/linear.ts"

describe("vectors", () => {
  const words = u32(8, (i) => Math.imul(i + 1, 0x9e3779b1) >>> 0)
  const amounts = (b: LinearBuilder, dtype: DType.DType, values: ReadonlyArray<number>): UOp =>
    b.arena.make("STACK", DType.withLanes(dtype, 4), values.map((v) => Expr.constant(b.arena, dtype, v)))
  it.each(
    [
      ["SHR", DType.u32, [0, 4, 8, 12]],
      ["SHR", DType.u32, [1, 31, 16, 24]],
      ["SHR", DType.i32, [0, 4, 30, 31]],
      ["SHR", DType.i32, [1, 2, 3, 4]],
      ["SHL", DType.u32, [0, 4, 31, 12]]
    ] as const
  )("%s by constants that differ: %o %o", (op, dtype, shifts) => {
    const linear = kernel((b) => {
      const out = b.param(0, dtype)
      const x = b.param(1, dtype)
      b.loop(2, "GLOBAL", (r) => {
        const at = Expr.mul(r, 4)
        b.store(out, at, Expr.alu(op, b.load(x, at, { lanes: 4 }), amounts(b, dtype, shifts)))
      })
    })
    const input = dtype === DType.u32 ? words : new Int32Array(words)
    const reference = (v: number, s: number): number => op === "SHL" ? v << s : dtype === DType.u32 ? v >>> s : v >> s
    const [out] = execute(linear, [input.map(() => 0) as typeof input, input])
    assert.deepStrictEqual(out, input.map((v, i) => reference(v, shifts[i % 4]!)) as typeof input)
  })

  it("takes lanes out, shuffles them, and builds vectors from scalars", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      const x = b.param(1)
      const v = b.load(x, 0, { lanes: 4 })
      const w = b.load(x, 4, { lanes: 4 })
      const stack = (...src: ReadonlyArray<UOp>) => b.arena.make("STACK", DType.make("f32", 4), src)
      b.store(out, 0, stack(Expr.lane(v, 3), Expr.lane(w, 0), Expr.lane(v, 1), Expr.lane(w, 2)))
      b.store(out, 4, stack(Expr.lane(v, 2), Expr.lane(v, 2), Expr.lane(v, 1), Expr.lane(v, 0)))
      const s = b.load(x, 6)
      b.store(out, 8, stack(s, Expr.add(s, 1), Expr.lane(w, 1), Expr.constant(b.arena, DType.f32, 9)))
      b.store(
        out,
        12,
        Expr.add(Expr.splat(b.load(x, 7), 4), stack(Expr.lane(v, 0), Expr.lane(v, 1), Expr.lane(v, 2), Expr.lane(v, 3)))
      )
    })
    const [out] = execute(linear, [new Float32Array(16), f32(8, (i) => i)])
    assert.deepStrictEqual([...out], [3, 4, 1, 6, 2, 2, 1, 0, 6, 7, 5, 9, 7, 8, 9, 10])
  })

  it("turns a scalar condition into a mask and back", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      const x = b.param(1)
      b.loop(4, "GLOBAL", (r) => {
        const at = Expr.mul(r, 4)
        const v = b.load(x, at, { lanes: 4 })
        const big = Expr.lt(Expr.splat(Expr.int(b.arena, 1), 4), Expr.splat(r, 4))
        const positive = Expr.lt(Expr.like(v, 0), v)
        const both = Expr.and(big, positive)
        const anyLane = [1, 2, 3].reduce((c, i) => Expr.or(c, Expr.lane(positive, i)), Expr.lane(positive, 0))
        b.store(out, at, Expr.where(both, v, Expr.splat(Expr.cast(anyLane, DType.f32), 4)))
      })
    })
    const x = f32(16, (i) => i < 4 ? -1 : i % 3 === 0 ? -i : i)
    const [out] = execute(linear, [new Float32Array(16), x])
    assert.deepStrictEqual(out, f32(16, (i) => i >= 8 && x[i]! > 0 ? x[i]! : i < 4 ? 0 : 1))
  })
})

describe("vectors of loaded words", () => {
  const words = u32(8, (i) => Math.imul(i + 1, 0x9e3779b1) >>> 0)
  const one = (f: (b: LinearBuilder, x: UOp) => UOp): UOp =>
    kernel((b) => {
      const [out, x] = [b.param(0, DType.u32), b.param(1, DType.u32)]
      b.store(out, 0, f(b, x))
    })

  it("are loaded lane by lane", () => {
    const linear = one((b, x) => b.arena.make("STACK", DType.make("u32", 4), [3, 1, 4, 6].map((i) => b.load(x, i))))
    assert.deepStrictEqual(
      execute(linear, [new Uint32Array(4), words])[0],
      Uint32Array.from([3, 1, 4, 6], (i) => words[i]!)
    )
    expect(text(linear).match(/v128.load32_\S+/g)).toHaveLength(4)
  })

  it("are multiplied there by a power of two, and nothing needs to be done for another view of their bits", () => {
    const product = one((b, x) => Expr.splat(Expr.mul(b.load(x, 2), 8), 4))
    assert.deepStrictEqual(execute(product, [new Uint32Array(4), words])[0], u32(4, () => words[2]! * 8 >>> 0))
    const view = one((b, x) => Expr.bitcast(Expr.splat(Expr.bitcast(b.load(x, 2), DType.f32), 4), DType.u32))
    assert.deepStrictEqual(execute(view, [new Uint32Array(4), words])[0], u32(4, () => words[2]!))
    for (const linear of [product, view]) expect(text(linear)).toContain("v128.load32_splat")
  })

  it("or zeros, by a mask", () => {
    const linear = one((b, x) => {
      const v = b.load(x, 0, { lanes: 4 })
      return Expr.where(Expr.lt(v, b.load(x, 4, { lanes: 4 })), v, Expr.like(v, 0))
    })
    const expected = u32(4, (i) => words[i]! < words[i + 4]! ? words[i]! : 0)
    assert.deepStrictEqual(execute(linear, [new Uint32Array(4), words])[0], expected)
    expect(text(linear)).not.toContain("bitselect")
  })
})
