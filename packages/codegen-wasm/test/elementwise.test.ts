/** Operations on elements, one or four at a time. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { UOp } from "@tg/core-uop/UOp"
import { assert, describe, it } from "@effect/vitest"
import { f32, i32, map, noise, u32 } from "./support/elements.ts"
import { execute } from "./support/execute.ts"

const floordiv = (x: number, y: number): number => y === 0 ? 0 : Math.floor(x / y)
const floormod = (x: number, y: number): number => y === 0 ? 0 : x - Math.floor(x / y) * y

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
