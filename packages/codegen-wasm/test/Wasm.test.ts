import * as DType from "@tg/core-uop/DType"
import { dot4I8 } from "@tg/core-uop/EvaluateOps"
import * as Expr from "@tg/core-uop/Expr"
import { evaluateIndex, Renderer } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import { assert, describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { nestOf } from "../src/internal/nest.ts"
import * as Wasm from "../src/Wasm.ts"
import { execute } from "./support/execute.ts"
import { kernel, type LinearBuilder } from "./support/linear.ts"

const f32 = (n: number, f: (i: number) => number): Float32Array => Float32Array.from({ length: n }, (_, i) => f(i))
const i32 = (n: number, f: (i: number) => number): Int32Array => Int32Array.from({ length: n }, (_, i) => f(i))
const u32 = (n: number, f: (i: number) => number): Uint32Array => Uint32Array.from({ length: n }, (_, i) => f(i))
const noise = (i: number): number => ((Math.imul(i + 1, 0x9e3779b1) >>> 8) / 2 ** 23 - 1) * 8

const floordiv = (x: number, y: number): number => y === 0 ? 0 : Math.floor(x / y)
const floormod = (x: number, y: number): number => y === 0 ? 0 : x - Math.floor(x / y) * y
/** out[i] = f(in[i], ...) for each element, scalar or four at a time. */
const map = (
  lanes: DType.Lanes,
  count: number,
  types: ReadonlyArray<DType.DType>,
  out: DType.DType,
  f: (...x: ReadonlyArray<UOp>) => UOp
): UOp =>
  kernel((b) => {
    const target = b.param(0, out)
    const inputs = types.map((t, i) => b.param(i + 1, t))
    b.loop(count / lanes, "GLOBAL", (r) => {
      const at = lanes === 1 ? r : Expr.mul(r, lanes)
      b.store(target, at, f(...inputs.map((p) => b.load(p, at, { lanes }))))
    })
  })

const text = (linear: UOp): string => {
  const result = Wasm.text("test", linear)
  if (typeof result !== "string") throw new Error(result.message)
  return result
}

describe.each([1, 4] as const)("elementwise, %i lanes", (lanes) => {
  const n = 32
  const a = f32(n, noise)
  const b = f32(n, (i) => noise(i + 100))
  const floats: Record<string, [(x: UOp, y: UOp) => UOp, (x: number, y: number) => number]> = {
    add: [Expr.add, (x, y) => x + y],
    sub: [Expr.sub, (x, y) => x - y],
    mul: [Expr.mul, (x, y) => x * y],
    div: [Expr.fdiv, (x, y) => x / y],
    max: [Expr.max, Math.max],
    min: [Expr.min, Math.min],
    neg: [(x) => Expr.neg(x), (x) => -x],
    sqrt: [(x) => Expr.alu("SQRT", Expr.mul(x, x)), (x) => Math.fround(Math.sqrt(Math.fround(x * x)))],
    trunc: [(x) => Expr.alu("TRUNC", x), Math.trunc],
    where: [(x, y) => Expr.where(Expr.lt(x, y), x, Expr.like(y, -0)), (x, y) => x < y ? x : -0],
    logic: [
      (x, y) => Expr.where(Expr.and(Expr.not(Expr.lt(x, 0)), Expr.ne(y, 0)), y, x),
      (x, y) => !(x < 0) && y !== 0 ? y : x
    ],
    truth: [(x, y) => Expr.cast(Expr.lt(x, y), DType.f32), (x, y) => x < y ? 1 : 0],
    // comparing booleans and turning one into a condition
    boolean: [
      (x, y) => Expr.where(Expr.eq(Expr.lt(x, 0), Expr.lt(y, 0)), x, y),
      (x, y) => x < 0 === y < 0 ? x : y
    ]
  }
  it.each(Object.entries(floats))("f32 %s", (_, [f, reference]) => {
    const [out] = execute(map(lanes, n, [DType.f32, DType.f32], DType.f32, f), [new Float32Array(n), a, b])
    assert.deepStrictEqual(out, f32(n, (i) => reference(a[i]!, b[i]!)))
  })

  const signed = Int32Array.from([0, 1, -1, 7, -7, 8, -8, 2 ** 31 - 1, -(2 ** 31), 100, -100, 5, -5, 13, -13, 3])
  const other = Int32Array.from([3, -3, 5, -5, 2, 7, -2, 3, -1, 8, -8, 1, -1, 100, -100, 0])
  const integers: Record<string, [(x: UOp, y: UOp) => UOp, (x: number, y: number) => number]> = {
    add: [Expr.add, (x, y) => x + y],
    mul: [Expr.mul, Math.imul],
    max: [Expr.max, Math.max],
    min: [Expr.min, Math.min],
    neg: [(x) => Expr.neg(x), (x) => -x],
    and: [Expr.and, (x, y) => x & y],
    or: [Expr.or, (x, y) => x | y],
    xor: [Expr.xor, (x, y) => x ^ y],
    less: [(x, y) => Expr.cast(Expr.lt(x, y), DType.i32), (x, y) => x < y ? 1 : 0],
    shl: [(x) => Expr.shl(x, 3), (x) => x << 3],
    shr: [(x) => Expr.shr(x, 3), (x) => x >> 3],
    "shr varying": [(x, y) => Expr.shr(x, Expr.and(y, 15)), (x, y) => x >> (y & 15)],
    "shl varying": [(x, y) => Expr.shl(x, Expr.and(y, 15)), (x, y) => x << (y & 15)],
    "// constant": [(x) => Expr.floordiv(x, 7), (x) => floordiv(x, 7)],
    "// negative": [(x) => Expr.floordiv(x, -3), (x) => floordiv(x, -3)],
    "// 8": [(x) => Expr.floordiv(x, 8), (x) => floordiv(x, 8)],
    "% 8": [(x) => Expr.floormod(x, 8), (x) => floormod(x, 8)],
    "%": [Expr.floormod, floormod],
    "//": [Expr.floordiv, floordiv],
    "// of naturals": [
      (x, y) => Expr.floordiv(Expr.and(x, 255), Expr.add(Expr.and(y, 7), 1)),
      (x, y) => Math.floor((x & 255) / ((y & 7) + 1))
    ]
  }
  it.each(Object.entries(integers))("i32 %s", (_, [f, reference]) => {
    const [out] = execute(map(lanes, 16, [DType.i32, DType.i32], DType.i32, f), [new Int32Array(16), signed, other])
    assert.deepStrictEqual(out, i32(16, (i) => reference(signed[i]!, other[i]!)))
  })

  const naturals: Record<string, [(x: UOp, y: UOp) => UOp, (x: number, y: number) => number]> = {
    max: [Expr.max, Math.max],
    shr: [(x) => Expr.shr(x, 4), (x) => x >>> 4],
    less: [(x, y) => Expr.cast(Expr.lt(x, y), DType.u32), (x, y) => x < y ? 1 : 0],
    "//": [Expr.floordiv, floordiv],
    "%": [Expr.floormod, floormod],
    "// 2^31": [(x) => Expr.floordiv(x, 2 ** 31), (x) => floordiv(x, 2 ** 31)]
  }
  it.each(Object.entries(naturals))("u32 %s", (_, [f, reference]) => {
    const x = new Uint32Array(signed)
    const y = new Uint32Array(other)
    const [out] = execute(map(lanes, 16, [DType.u32, DType.u32], DType.u32, f), [new Uint32Array(16), x, y])
    assert.deepStrictEqual(out, u32(16, (i) => reference(x[i]!, y[i]!)))
  })

  const edges = Float32Array.from([
    0,
    -0,
    1.9,
    -1.9,
    NaN,
    Infinity,
    -Infinity,
    3e9,
    -3e9,
    2147483520,
    0.5,
    -0.5,
    1e-30,
    255.99,
    7,
    -7
  ])
  const clamp = (x: number, lo: number, hi: number): number =>
    Number.isNaN(x) ? 0 : Math.min(hi, Math.max(lo, Math.trunc(x)))
  it("casts saturate, truncate and convert back", () => {
    const cast = (to: DType.DType) => map(lanes, 16, [DType.f32], to, (x) => Expr.cast(x, to))
    const [toI32] = execute(cast(DType.i32), [new Int32Array(16), edges])
    assert.deepStrictEqual(toI32, i32(16, (i) => clamp(edges[i]!, -(2 ** 31), 2 ** 31 - 1)))
    const [toU32] = execute(cast(DType.u32), [new Uint32Array(16), edges])
    assert.deepStrictEqual(toU32, u32(16, (i) => clamp(edges[i]!, 0, 2 ** 32 - 1)))
    const back = (from: DType.DType) => map(lanes, 16, [from], DType.f32, (x) => Expr.cast(x, DType.f32))
    const [fromI32] = execute(back(DType.i32), [new Float32Array(16), signed])
    assert.deepStrictEqual(fromI32, new Float32Array(signed))
    const [fromU32] = execute(back(DType.u32), [new Float32Array(16), new Uint32Array(signed)])
    assert.deepStrictEqual(fromU32, new Float32Array(new Uint32Array(signed)))
    const [bits] = execute(map(lanes, 16, [DType.f32], DType.u32, (x) => Expr.bitcast(x, DType.u32)), [
      new Uint32Array(16),
      edges
    ])
    assert.deepStrictEqual(bits, new Uint32Array(edges.buffer.slice(0)))
    const [truth] = execute(
      map(lanes, 16, [DType.f32], DType.u32, (x) => Expr.cast(Expr.cast(x, DType.bool), DType.u32)),
      [new Uint32Array(16), edges]
    )
    assert.deepStrictEqual(truth, u32(16, (i) => edges[i] !== 0 ? 1 : 0))
  })

  it("max and min with a NaN give the first operand", () => {
    const first = f32(4, () => NaN)
    const second = f32(4, () => 2)
    const max = map(lanes, 4, [DType.f32, DType.f32], DType.f32, Expr.max)
    assert.deepStrictEqual(execute(max, [new Float32Array(4), first, second])[0], first)
    assert.deepStrictEqual(execute(max, [new Float32Array(4), second, first])[0], second)
  })
})

describe.each([1, 4] as const)("%i lanes", (lanes) => {
  it("multiplies bytes and adds the products of a word", () => {
    const [a, b] = [[0, 0x80808080, 0x7f7f7f7f, 0x01020304, 0xfe81007f, 0x12345678, 0xffffffff, 0x80000000], [
      0x80808080,
      0x80808080,
      0x80808080,
      0x05060708,
      0x7f7f7f7f,
      0x9abcdef0,
      1,
      0x80000000
    ]].map((words) => Uint32Array.from(words)) as [Uint32Array, Uint32Array]
    const dot = map(lanes, 8, [DType.u32, DType.u32], DType.i32, (x, y) => Expr.alu("DOT4I8", x, y))
    assert.deepStrictEqual(execute(dot, [new Int32Array(8), a, b])[0], Int32Array.from(a, (x, i) => dot4I8(x, b[i]!)))
  })
})

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

const matvec = (rows: number, columns: number): UOp =>
  kernel((b) => {
    const out = b.param(0)
    const w = b.param(1)
    const x = b.param(2)
    b.loop(rows, "GLOBAL", (row) => {
      const start = b.add(Expr.mul(row, columns))
      const sum = b.register(Expr.like(b.add(Expr.splat(Expr.constant(b.arena, DType.f32, 0), 4)), 0))
      b.loop(columns / 4, "REDUCE", (k) => {
        const at = Expr.mul(k, 4)
        const a = b.load(w, Expr.add(start, at), { lanes: 4 })
        b.accumulate("ADD", sum, Expr.mul(a, b.load(x, at, { lanes: 4 })))
      })
      const total = [1, 2, 3].reduce((t, i) => Expr.add(t, Expr.lane(sum, i)), Expr.lane(sum, 0))
      b.store(out, row, total)
    })
  })

describe("loops", () => {
  it("a matrix times a vector", () => {
    const w = f32(6 * 16, (i) => i % 7 - 3)
    const x = f32(16, (i) => i % 5 - 2)
    const [out] = execute(matvec(6, 16), [new Float32Array(6), w, x])
    // small integers: sums are exact in any order
    assert.deepStrictEqual(out, f32(6, (r) => x.reduce((s, v, k) => s + v * w[r * 16 + k]!, 0)))
  })

  it("renders addresses once per loop and offsets as immediates", () => {
    expect(text(matvec(6, 16))).toMatchInlineSnapshot(`
      "(module
        (import "env" "memory" (memory 1 65536 shared))
        (func (export "run") (param $from i32) (param $to i32) (param $p0 i32) (param $p1 i32) (param $p2 i32)
          (local $i0 i32) (local $a1 i32) (local $r2 v128) (local $i3 i32)
          (if (i32.lt_s (local.get $from) (local.get $to)) (then
            (local.set $i0 (local.get $from))
            (loop $loop_i0
              (local.set $a1 (i32.add (local.get $p1) (i32.shl (local.get $i0) (i32.const 6))))
              (local.set $r2 (v128.const f32x4 0 0 0 0))
              (local.set $i3 (i32.const 0))
              (loop $loop_i3
                (local.set $r2 (f32x4.add (local.get $r2) (f32x4.mul (v128.load (i32.add (local.get $a1) (i32.shl (local.get $i3) (i32.const 4)))) (v128.load (i32.add (local.get $p2) (i32.shl (local.get $i3) (i32.const 4)))))))
                (br_if $loop_i3 (i32.lt_s (local.tee $i3 (i32.add (local.get $i3) (i32.const 1))) (i32.const 4)))
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

describe("gates and branches", () => {
  it.each([1, 4] as const)("a false gate reads nothing and gives zero, %i lanes", (lanes) => {
    const linear = kernel((b) => {
      const out = b.param(0)
      const x = b.param(1)
      b.loop(4, "GLOBAL", (r) => {
        // false for the first block (index below 0) and the last (far outside of the memory)
        const from = Expr.mul(Expr.sub(r, 1), lanes)
        const far = Expr.where(Expr.lt(r, 3), from, Expr.int(b.arena, 2 ** 28))
        const gate = Expr.and(Expr.lt(Expr.int(b.arena, 0), r), Expr.lt(r, 3))
        b.store(out, Expr.mul(r, lanes), b.load(x, far, { gate, lanes }))
      })
    })
    const [out] = execute(linear, [f32(4 * lanes, () => 9), f32(2 * lanes, (i) => i + 1)])
    assert.deepStrictEqual(out, f32(4 * lanes, (i) => i < lanes || i >= 3 * lanes ? 0 : i - lanes + 1))
  })

  it("a false gate writes nothing", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      b.loop(
        8,
        "GLOBAL",
        (r) => b.store(out, Expr.sub(r, 3), Expr.cast(r, DType.f32), Expr.lt(Expr.int(b.arena, 2), r))
      )
    })
    assert.deepStrictEqual([...execute(linear, [new Float32Array(8)])[0]], [3, 4, 5, 6, 7, 0, 0, 0])
  })

  it("IF", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      b.loop(
        4,
        "GLOBAL",
        (r) => b.branch(Expr.eq(Expr.floormod(r, 2), 1), () => b.store(out, r, Expr.cast(r, DType.f32)))
      )
    })
    assert.deepStrictEqual([...execute(linear, [new Float32Array(4)])[0]], [0, 1, 0, 3])
  })
})

describe("constants", () => {
  it("keeps every float", () => {
    const values = [0, -0, 1, NaN, Infinity, -Infinity, 1e-45, 3.4028234663852886e38, 0.1, 2 ** -126, -1e21, 16777217]
    const linear = kernel((b) => {
      const out = b.param(0)
      values.forEach((v, i) => b.store(out, i, Expr.constant(b.arena, DType.f32, v)))
    })
    assert.deepStrictEqual(execute(linear, [new Float32Array(values.length)])[0], Float32Array.from(values))
  })

  it("keeps a long chain of single uses within the assembler's depth", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      let sum = b.load(out, 0)
      for (let i = 0; i < 3000; i++) sum = Expr.add(sum, i % 3)
      b.store(out, 0, sum)
    })
    assert.deepStrictEqual([...execute(linear, [new Float32Array(1)])[0]], [3000])
  })
})

describe("errors", () => {
  const refusal = (linear: UOp): string => {
    const result = Wasm.text("k", linear)
    return typeof result === "string" ? "accepted" : result.message
  }
  it("names what has no WebAssembly form", () => {
    assert.match(
      refusal(kernel((b) => b.add(b.arena.make("SPECIAL", DType.index, [b.int(4)], { name: "gidx0" })))),
      /k: SPECIAL needs a grid/
    )
    assert.match(refusal(kernel((b) => b.add(b.arena.make("BARRIER", DType.none)))), /BARRIER/)
    assert.match(
      refusal(kernel((b) => b.add(Expr.alu("SIN", Expr.constant(b.arena, DType.f32, 1))))),
      /SIN is not native/
    )
    assert.match(refusal(kernel((b) => b.load(b.param(0), 0, { lanes: 2 }))), /f32x2/)
  })

  it("names a value used outside of its loop", () => {
    const linear = kernel((b) => b.loop(2, "LOOP", (r) => b.store(b.param(0), r, Expr.cast(r, DType.f32))))
    const find = (op: string): UOp => linear.src.find((n) => n.op === op)!
    const element = Expr.element(find("PARAM"), find("CONST"))
    const late = linear.with([...linear.src, element, Expr.store(element, find("CAST"))])
    assert.match(refusal(late), /STORE uses CAST outside of the loop/)
  })
})

describe("Renderer", () => {
  it.effect("renders through the service", () =>
    Effect.gen(function*() {
      const renderer = yield* Renderer
      const program = yield* renderer.render("axpy", matvec(2, 4))
      assert.deepStrictEqual(program.bindings, [
        { slot: 0, access: "write" },
        { slot: 1, access: "read" },
        { slot: 2, access: "read" }
      ])
      assert.isTrue(WebAssembly.validate(program.code as Uint8Array<ArrayBuffer>))
      assert.isTrue(renderer.caps.ops.has("FLOORDIV"))
    }).pipe(Effect.provide(Wasm.layer)))

  it.effect("fails with the kernel's name", () =>
    Effect.gen(function*() {
      const renderer = yield* Renderer
      const linear = kernel((b) => b.add(b.arena.make("BARRIER", DType.none)))
      const error = yield* Effect.flip(renderer.render("softmax", linear))
      assert.strictEqual(error.kernel, "softmax")
    }).pipe(Effect.provide(Wasm.layer)))
})

describe("parts", () => {
  /** out[t, i, j] = t + 10 i + 100 j + sum of x, whose sum stands in the outermost loop. */
  const nested = (innermost: "GLOBAL" | "LOOP") =>
    kernel((b) => {
      const out = b.param(0)
      const x = b.param(1)
      const count = b.add(Expr.variable(b.arena, "n", 1, 4))
      b.loop(count, "GLOBAL", (t) => {
        const sum = b.register(b.add(Expr.constant(b.arena, DType.f32, 0)))
        b.loop(2, "REDUCE", (k) => b.accumulate("ADD", sum, b.load(x, k)))
        b.loop(3, "GLOBAL", (i) => {
          b.loop(5, innermost, (j) => {
            const index = Expr.add(Expr.add(t, Expr.mul(i, 10)), Expr.mul(j, 100))
            const at = Expr.add(Expr.mul(Expr.add(Expr.mul(t, 3), i), 5), j)
            b.store(out, at, Expr.add(Expr.cast(index, DType.f32), sum))
          })
        })
      })
    })
  const expected = (n: number) =>
    f32(
      60,
      (i) => i >= n * 15 ? 0 : Math.floor(i / 15) + 10 * (Math.floor(i / 5) % 3) + 100 * (i % 5) + 3
    )

  it.each([["GLOBAL", 1], ["GLOBAL", 2], ["GLOBAL", 7], ["GLOBAL", 61], ["LOOP", 4]] as const)(
    "%s: %i parts are the whole",
    (innermost, parts) => {
      for (const n of [1, 2, 4]) {
        const [out] = execute(nested(innermost), [new Float32Array(60), f32(2, (i) => i + 1)], [n], { parts })
        assert.deepStrictEqual(out, expected(n))
      }
    }
  )

  const shape = (linear: UOp, n: number) => {
    const { iterations, perIteration, perPart } = nestOf(linear)
    return [iterations, perPart, perIteration].map((count) => evaluateIndex(count, { n }))
  }

  it("counts what is done for each part and each iteration", () => {
    // the sum: its start, two loads and two additions
    assert.deepStrictEqual(shape(nested("GLOBAL"), 2), [30, 5, 11])
    assert.deepStrictEqual(shape(nested("LOOP"), 2), [6, 5, 55])
  })

  it("does not divide what is stored by several loops", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      const one = b.add(Expr.constant(b.arena, DType.f32, 1))
      b.loop(4, "GLOBAL", (i) => b.store(out, i, one))
      b.loop(4, "GLOBAL", (i) => b.store(out, Expr.add(i, 4), one))
    })
    assert.deepStrictEqual(nestOf(linear).ranges, [])
    assert.deepStrictEqual(execute(linear, [new Float32Array(8)])[0], f32(8, () => 1))
  })

  it("renders for a memory that only one thread has", () => {
    const module = Wasm.text("test", nested("GLOBAL"), { memory: "own" })
    assert.match(String(module), /\(import "env" "memory" \(memory 1\)\)/)
  })
})
