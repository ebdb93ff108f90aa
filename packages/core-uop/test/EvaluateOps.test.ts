import * as DType from "@tg/core-uop/DType"
import { allocate, evaluateScalar, floatToHalf, halfToFloat, monoid, scalar } from "@tg/core-uop/EvaluateOps"
import * as Expr from "@tg/core-uop/Expr"
import type { Op } from "@tg/core-uop/Op"
import { Arena } from "@tg/core-uop/UOp"
import { describe, expect, it } from "vitest"

const apply = (op: Op, from: DType.DType, to: DType.DType, ...x: ReadonlyArray<number>): number => {
  const cell = allocate(to, 1)
  cell[0] = scalar(op, from, to)(x[0]!, x[1]!, x[2]!)
  return cell[0]!
}
const { bool, f32, i32, index, u32 } = DType

describe("halves", () => {
  it("decodes all 65536 by the formula sign * 2^(e-25) * (1024 + fraction)", () => {
    for (let bits = 0; bits < 65536; bits++) {
      const sign = bits & 0x8000 ? -1 : 1
      const e = (bits >> 10) % 32
      const fraction = bits % 1024
      const wanted = e === 31
        ? fraction === 0 ? sign * Infinity : NaN
        : sign * Math.pow(2, Math.max(e, 1) - 25) * (fraction + (e === 0 ? 0 : 1024))
      expect(Object.is(halfToFloat(bits), wanted), bits.toString(16)).toBe(true)
    }
  })

  it("encodes every half back to itself", () => {
    for (let bits = 0; bits < 65536; bits++) {
      const x = halfToFloat(bits)
      expect(floatToHalf(x)).toBe(Number.isNaN(x) ? 0x7e00 : bits)
    }
  })

  it("rounds the middle between neighbours to the even one, and everything else to the nearer one", () => {
    for (let bits = 0; bits < 0x7c00; bits++) {
      const low = halfToFloat(bits)
      const high = bits === 0x7bff ? 65536 : halfToFloat(bits + 1)
      const middle = (low + high) / 2
      const even = bits % 2 === 0 ? bits : bits + 1
      expect(floatToHalf(middle)).toBe(even)
      expect(floatToHalf(-middle)).toBe(even | 0x8000)
      // halves are far coarser than f32 here: a 2^-20 step away from the middle is still representable
      expect(floatToHalf(middle - (high - low) * 2 ** -20)).toBe(bits)
      expect(floatToHalf(middle + (high - low) * 2 ** -20)).toBe(bits + 1)
    }
  })

  it("agrees with the platform's Float16Array where there is one", () => {
    const Float16 =
      (globalThis as { Float16Array?: new(x: ReadonlyArray<number>) => { buffer: ArrayBuffer } }).Float16Array
    const samples = [0, -0, 1e-8, 2 ** -25, 2 ** -24 * 1.5, 6.1e-5, 1 / 3, 1024.5, 65519.99, 65520, 1e9, -1e9, Infinity]
    const wanted = Float16 === undefined
      ? [0, 0x8000, 0, 0, 2, 0x03ff, 0x3555, 0x6400, 0x7bff, 0x7c00, 0x7c00, 0xfc00, 0x7c00]
      : [...new Uint16Array(new Float16(samples).buffer)]
    expect(samples.map(floatToHalf)).toEqual(wanted)
  })
})

describe("elementwise operations", () => {
  it.each<[Op, DType.DType, ReadonlyArray<number>, number]>([
    ["ADD", f32, [0.1, 0.2], Math.fround(0.1 + 0.2)],
    ["ADD", i32, [2 ** 31 - 1, 1], -(2 ** 31)],
    ["ADD", u32, [2 ** 32 - 1, 2], 1],
    ["SUB", u32, [0, 1], 2 ** 32 - 1],
    ["SUB", index, [3, 5], -2],
    ["MUL", i32, [65537, 65537], 131073],
    ["MUL", u32, [0xffffffff, 0xffffffff], 1],
    ["MUL", index, [2 ** 20, 2 ** 20], 2 ** 40],
    ["FDIV", f32, [1, 0], Infinity],
    ["FDIV", f32, [-1, 0], -Infinity],
    ["FDIV", f32, [0, 0], NaN],
    ["FLOORDIV", i32, [-7, 2], -4],
    ["FLOORDIV", i32, [7, -2], -4],
    ["FLOORDIV", i32, [-(2 ** 31), -1], -(2 ** 31)],
    ["FLOORDIV", u32, [2 ** 32 - 1, 2], 2 ** 31 - 1],
    ["FLOORDIV", i32, [5, 0], 0],
    ["FLOORMOD", i32, [-7, 3], 2],
    ["FLOORMOD", i32, [7, -3], -2],
    ["FLOORMOD", index, [-1, 32], 31],
    ["FLOORMOD", u32, [2 ** 32 - 1, 10], 5],
    ["MAX", f32, [-0, 0], -0],
    ["MAX", f32, [NaN, 1], NaN],
    ["MAX", f32, [1, NaN], 1],
    ["MIN", f32, [-Infinity, 1], -Infinity],
    ["MAX", u32, [2 ** 32 - 1, 1], 2 ** 32 - 1],
    ["MIN", i32, [-1, 1], -1],
    ["AND", u32, [0xffffffff, 0xf000000f], 0xf000000f],
    ["OR", u32, [0x80000000, 1], 0x80000001],
    ["XOR", i32, [-1, 1], -2],
    ["XOR", bool, [1, 1], 0],
    ["SHL", u32, [1, 31], 2 ** 31],
    ["SHL", i32, [1, 31], -(2 ** 31)],
    ["SHL", u32, [1, 33], 2],
    ["SHL", index, [3, 4], 48],
    ["SHR", u32, [0x80000000, 31], 1],
    ["SHR", i32, [-(2 ** 31), 31], -1],
    ["SHR", index, [-5, 1], -3],
    ["NEG", u32, [1], 2 ** 32 - 1],
    ["NEG", f32, [0], -0],
    ["SQRT", f32, [-1], NaN],
    ["SQRT", f32, [2], Math.fround(Math.SQRT2)],
    ["EXP2", f32, [-Infinity], 0],
    ["EXP2", f32, [10], 1024],
    ["EXP2", f32, [128], Infinity],
    ["LOG2", f32, [0], -Infinity],
    ["LOG2", f32, [8], 3],
    ["SIN", f32, [0], 0],
    ["TRUNC", f32, [-1.5], -1],
    ["TRUNC", f32, [-0.5], -0],
    ["WHERE", f32, [1, 2, 3], 2],
    ["WHERE", i32, [0, 2, 3], 3],
    ["MULACC", f32, [1 + 2 ** -23, 1 + 2 ** -23, -1], 2 ** -22],
    ["MULACC", i32, [65536, 65536, 7], 7]
  ])("%s on %o: %o is %d", (op, dtype, x, wanted) => {
    expect(apply(op, dtype, dtype, ...x)).toBe(wanted)
  })

  it.each<[ReadonlyArray<number>, number]>([
    [[0x01020304, 0x05060708], 5 + 12 + 21 + 32],
    [[0xff00ff00, 0x7f017f01], -254],
    [[0x80808080, 0x80808080], 65536],
    [[0x80808080, 0x7f7f7f7f], -65024]
  ])("DOT4I8 of %o is %d", (x, wanted) => expect(apply("DOT4I8", u32, i32, ...x)).toBe(wanted))

  it.each<[Op, DType.DType, ReadonlyArray<number>, number]>([
    ["CMPLT", f32, [NaN, 1], 0],
    ["CMPLT", u32, [1, 2 ** 32 - 1], 1],
    ["CMPLT", i32, [-1, 1], 1],
    ["CMPEQ", f32, [-0, 0], 1],
    ["CMPEQ", f32, [NaN, NaN], 0],
    ["CMPNE", f32, [NaN, NaN], 1],
    ["CMPNE", bool, [1, 0], 1]
  ])("%s on %o: %o is %d", (op, dtype, x, wanted) => {
    expect(apply(op, dtype, bool, ...x)).toBe(wanted)
  })

  it.each<[DType.DType, DType.DType, number, number]>([
    [f32, i32, -1.9, -1],
    [f32, i32, 1e20, 2 ** 31 - 1],
    [f32, i32, NaN, 0],
    [f32, u32, -5, 0],
    [f32, u32, 4e9, 4e9],
    [f32, u32, Infinity, 2 ** 32 - 1],
    [f32, bool, NaN, 1],
    [f32, bool, -0, 0],
    [u32, i32, 2 ** 32 - 1, -1],
    [i32, u32, -1, 2 ** 32 - 1],
    [u32, index, 2 ** 32 - 1, -1],
    [index, u32, -2, 2 ** 32 - 2],
    [i32, f32, 2 ** 24 + 1, 2 ** 24],
    [u32, f32, 2 ** 32 - 1, 2 ** 32],
    [index, f32, -0, 0],
    [bool, f32, 1, 1],
    [bool, i32, 1, 1],
    [i32, bool, -7, 1],
    [f32, f32, -0, -0]
  ])("CAST %o to %o: %d is %d", (from, to, x, wanted) => {
    expect(apply("CAST", from, to, x)).toBe(wanted)
  })

  it("reinterprets bits both ways", () => {
    expect(apply("BITCAST", f32, u32, 1)).toBe(0x3f800000)
    expect(apply("BITCAST", f32, i32, -0)).toBe(-(2 ** 31))
    expect(apply("BITCAST", u32, f32, 0x7f800000)).toBe(Infinity)
    expect(apply("BITCAST", i32, f32, -(2 ** 31))).toBe(-0)
    expect(apply("BITCAST", i32, u32, -1)).toBe(2 ** 32 - 1)
  })

  it("names an operation that is not elementwise", () => {
    expect(() => scalar("LOAD", f32, f32)).toThrow("LOAD is not elementwise")
  })
})

describe("monoids", () => {
  it.each<["ADD" | "MUL" | "MAX" | "MIN", DType.DType]>(
    (["ADD", "MUL", "MAX", "MIN"] as const).flatMap((op) =>
      [f32, i32, u32, bool].map((d): [typeof op, DType.DType] => [op, d])
    )
  )("%s has its identity on %o, and it is the one of the IR", (op, dtype) => {
    const { combine, identity } = monoid(op, dtype)
    const samples = dtype === bool ? [0, 1] : dtype === u32 ? [0, 1, 2 ** 32 - 1] : [-3, 0, 1, 7]
    for (const x of samples) expect(combine(identity, x)).toBe(x)
    expect(Number(Expr.identity(new Arena(), op, dtype).arg)).toBe(identity)
  })

  it("wraps integers at every step", () => {
    expect(monoid("ADD", i32).combine(2 ** 31 - 1, 1)).toBe(-(2 ** 31))
    expect(monoid("MUL", u32).combine(2 ** 31, 2)).toBe(0)
  })
})

describe("scalar expressions", () => {
  const arena = new Arena()
  const v = Expr.variable(arena, "v", 0, 100)

  it("computes sizes from variables", () => {
    expect(evaluateScalar(Expr.floordiv(Expr.add(v, 31), 32), { v: 33 })).toBe(2)
    expect(evaluateScalar(Expr.and(v, 6), { v: 13 })).toBe(4)
  })

  it("says which variable has no value", () => {
    expect(() => evaluateScalar(v, {})).toThrow("no value for the variable v")
  })
})
