/** Loops, the addresses and registers in them, and where values may be computed. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { assert, describe, expect, it } from "@effect/vitest"
import { f32, i32, matvec, text } from "./support/elements.ts"
import { execute } from "./support/execute.ts"
import { kernel } from "./support/linear.ts"

describe("loops", () => {
  it("a matrix times a vector", () => {
    const w = f32(6 * 16, (i) => i % 7 - 3)
    const x = f32(16, (i) => i % 5 - 2)
    const [out] = execute(matvec(6, 16), [new Float32Array(6), w, x])
    // small integers: sums are exact in any order
    assert.deepStrictEqual(out, f32(6, (r) => x.reduce((s, v, k) => s + v * w[r * 16 + k]!, 0)))
  })

  it("renders addresses once per loop and offsets as immediates", () => {
    expect(text(matvec(6, 32))).toMatchInlineSnapshot(`
      "(module
        (import "env" "memory" (memory 1 65536 shared))
        (func (export "run") (param $from i32) (param $to i32) (param $p0 i32) (param $p1 i32) (param $p2 i32)
          (local $i0 i32) (local $a1 i32) (local $r2 v128) (local $i3 i32)
          (if (i32.lt_s (local.get $from) (local.get $to)) (then
            (local.set $i0 (local.get $from))
            (loop $loop_i0
              (local.set $a1 (i32.add (local.get $p1) (i32.shl (local.get $i0) (i32.const 7))))
              (local.set $r2 (v128.const f32x4 0 0 0 0))
              (local.set $i3 (i32.const 0))
              (loop $loop_i3
                (local.set $r2 (f32x4.add (local.get $r2) (f32x4.mul (v128.load (i32.add (local.get $a1) (i32.shl (local.get $i3) (i32.const 4)))) (v128.load (i32.add (local.get $p2) (i32.shl (local.get $i3) (i32.const 4)))))))
                (br_if $loop_i3 (i32.lt_s (local.tee $i3 (i32.add (local.get $i3) (i32.const 1))) (i32.const 8)))
              )
              (f32.store (i32.add (local.get $p0) (i32.shl (local.get $i0) (i32.const 2))) (f32.add (f32.add (f32.add (f32x4.extract_lane 0 (local.get $r2)) (f32x4.extract_lane 1 (local.get $r2))) (f32x4.extract_lane 2 (local.get $r2))) (f32x4.extract_lane 3 (local.get $r2))))
              (br_if $loop_i0 (i32.lt_s (local.tee $i0 (i32.add (local.get $i0) (i32.const 1))) (local.get $to)))
            )
          ))
        ))
      "
    `)
  })

  it("computes the invariant part of an address outside, and unrolled rows by offset", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      const w = b.param(1)
      b.loop(2, "GLOBAL", (row) => {
        const sum = b.register(Expr.constant(b.arena, DType.f32, 0))
        b.loop(8, "REDUCE", (k) => {
          const at = Expr.add(Expr.mul(row, 16), k)
          b.accumulate("ADD", sum, Expr.mul(b.load(w, at), b.load(w, Expr.add(at, 8))))
        })
        b.store(out, row, sum)
      })
    })
    const w = f32(32, (i) => i % 6 - 2)
    const [out] = execute(linear, [new Float32Array(2), w])
    assert.deepStrictEqual(
      out,
      f32(2, (r) => {
        let s = 0
        for (let k = 0; k < 8; k++) s += w[r * 16 + k]! * w[r * 16 + k + 8]!
        return s
      })
    )
    expect(text(linear)).toMatchInlineSnapshot(`
      "(module
        (import "env" "memory" (memory 1 65536 shared))
        (func (export "run") (param $from i32) (param $to i32) (param $p0 i32) (param $p1 i32)
          (local $i0 i32) (local $a1 i32) (local $r2 f32) (local $i3 i32) (local $a4 i32)
          (if (i32.lt_s (local.get $from) (local.get $to)) (then
            (local.set $i0 (local.get $from))
            (loop $loop_i0
              (local.set $a1 (i32.add (local.get $p1) (i32.shl (local.get $i0) (i32.const 6))))
              (local.set $r2 (f32.const 0))
              (local.set $i3 (i32.const 0))
              (loop $loop_i3
                (local.set $a4 (i32.add (local.get $a1) (i32.shl (local.get $i3) (i32.const 2))))
                (local.set $r2 (f32.add (local.get $r2) (f32.mul (f32.load (local.get $a4)) (f32.load offset=32 (local.get $a4)))))
                (br_if $loop_i3 (i32.lt_s (local.tee $i3 (i32.add (local.get $i3) (i32.const 1))) (i32.const 8)))
              )
              (f32.store (i32.add (local.get $p0) (i32.shl (local.get $i0) (i32.const 2))) (local.get $r2))
              (br_if $loop_i0 (i32.lt_s (local.tee $i0 (i32.add (local.get $i0) (i32.const 1))) (local.get $to)))
            )
          ))
        ))
      "
    `)
  })

  it("rows chosen by a loaded number, whose sign is unknown", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      const w = b.param(1)
      const id = b.add(Expr.cast(b.load(b.param(2, DType.i32), 0), DType.index))
      b.loop(4, "GLOBAL", (k) => {
        const at = Expr.add(Expr.mul(id, 8), k)
        // the row before the chosen one, and 4 further: neither constant may become an immediate
        b.store(out, k, Expr.add(b.load(w, Expr.add(at, -8)), Expr.mul(b.load(w, Expr.add(at, 4)), 100)))
      })
    })
    const w = f32(32, (i) => i)
    assert.deepStrictEqual([...execute(linear, [new Float32Array(4), w, i32(1, () => 2)])[0]], [2008, 2109, 2210, 2311])
    assert.notMatch(text(linear), /offset=/)
  })

  it.each(["ADD", "MUL", "MAX", "MIN"] as const)("reduces with %s, i32 and f32", (op) => {
    const reference = {
      ADD: (a: number, b: number) => a + b,
      MUL: (a: number, b: number) => a * b,
      MAX: Math.max,
      MIN: Math.min
    }
    for (const dtype of [DType.f32, DType.i32]) {
      const linear = kernel((b) => {
        const out = b.param(0, dtype)
        const x = b.param(1, dtype)
        const register = b.register(Expr.identity(b.arena, op, dtype))
        b.loop(7, "REDUCE", (k) => b.accumulate(op, register, b.load(x, k)))
        b.store(out, 0, register)
      })
      const data = [3, -2, 5, 1, -4, 2, 2]
      const make = (d: ReadonlyArray<number>) => dtype === DType.f32 ? Float32Array.from(d) : Int32Array.from(d)
      const [out] = execute(linear, [make([0]), make(data)])
      assert.deepStrictEqual([...out], [data.reduce((a, b) => reference[op](a, b))])
    }
  })

  it("a loop over a variable, including none", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      const n = b.add(Expr.variable(b.arena, "n", 0, 8))
      const scale = b.add(Expr.variable(b.arena, "a", -5, 5))
      b.loop(n, "GLOBAL", (r) => b.store(out, r, Expr.cast(Expr.add(Expr.mul(r, scale), n), DType.f32)))
    })
    for (const n of [0, 1, 5]) {
      // variables are passed by name: a, n
      const [out] = execute(linear, [new Float32Array(8)], [-3, n])
      assert.deepStrictEqual(out, f32(8, (i) => i < n ? -3 * i + n : 0))
    }
  })

  it("a computed size, and a loop of one iteration", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      const n = b.add(Expr.variable(b.arena, "n", 0, 8))
      b.loop(
        1,
        "GLOBAL",
        (one) =>
          b.loop(
            Expr.floordiv(Expr.add(n, 1), 2),
            "LOOP",
            (r) => b.store(out, Expr.add(r, one), Expr.cast(Expr.add(r, 1), DType.f32))
          )
      )
    })
    assert.deepStrictEqual([...execute(linear, [new Float32Array(4)], [5])[0]], [1, 2, 3, 0])
    assert.deepStrictEqual([...execute(linear, [new Float32Array(4)], [0])[0]], [0, 0, 0, 0])
  })

  it("reads a register where the reader stands, not where its value is used", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      const register = b.register(Expr.constant(b.arena, DType.f32, 1))
      const before = b.add(Expr.add(register, 10))
      b.accumulate("ADD", register, Expr.constant(b.arena, DType.f32, 5))
      b.store(out, 0, before)
      b.store(out, 1, register)
    })
    assert.deepStrictEqual([...execute(linear, [new Float32Array(2)])[0]], [11, 6])
  })

  it("does not move a load past a store", () => {
    const linear = kernel((b) => {
      const x = b.param(0)
      const old = b.load(x, 0)
      b.store(x, 0, b.load(x, 1))
      b.store(x, 1, old)
    })
    assert.deepStrictEqual([...execute(linear, [f32(2, (i) => i + 1)])[0]], [2, 1])
  })

  it("does not move a load out of its iteration", () => {
    const linear = kernel((b) => {
      const x = b.param(0)
      const first = b.load(x, 0)
      b.loop(3, "LOOP", (i) => b.store(x, Expr.add(i, 0), Expr.add(b.load(x, i), 1)))
      b.store(x, 3, first)
    })
    assert.deepStrictEqual([...execute(linear, [f32(4, () => 7)])[0]], [8, 8, 8, 7])
  })
})
