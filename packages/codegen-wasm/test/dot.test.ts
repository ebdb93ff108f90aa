/** Products of bytes: the same numbers with relaxed SIMD and without, at the ends of every range. */
import * as DType from "@tg/core-uop/DType"
import { dot4I8 } from "@tg/core-uop/EvaluateOps"
import * as Expr from "@tg/core-uop/Expr"
import type { UOp } from "@tg/core-uop/UOp"
import { assert, describe, expect, it } from "@effect/vitest"
import * as Wasm from "../src/Wasm.ts"
import { execute } from "./support/execute.ts"
import { kernel } from "./support/linear.ts"

const dot = (a: UOp, b: UOp): UOp => Expr.alu("DOT4I8", a, b)
const lanes = 4
const withLiteral = (op: "AND" | "SHL" | "SHR", x: UOp, value: number): UOp =>
  Expr.alu(op, x, Expr.splat(Expr.constant(x.arena, DType.u32, value >>> 0), lanes))
const byte = 0x01010101

/** out[i] = initial[i], if asked for, + sum over j of x[j][i] dot (w[j][i] & mask), four at a time. */
const sumOfDots = (count: number, mask: number, extra: boolean): UOp =>
  kernel((b) => {
    const out = b.param(0, DType.i32)
    const initial = b.param(1, DType.i32)
    const [x, w] = [b.param(2, DType.u32), b.param(3, DType.u32)]
    b.loop(words / lanes, "GLOBAL", (i) => {
      const at = Expr.mul(i, lanes)
      const read = (p: UOp, j: number): UOp => b.load(p, Expr.add(at, j * words), { lanes })
      const dots = Array.from({ length: count }, (_, j) => dot(read(x, j), withLiteral("AND", read(w, j), mask)))
      const addends = extra ? [b.load(initial, at, { lanes }), ...dots] : dots
      b.store(out, at, addends.reduce((s, d) => Expr.add(s, d)))
    })
  })

const words = 8
const most = 9
const extremes = Uint32Array.from(
  { length: words * most },
  (_, i) => [0x80808080, 0x7f7f7f7f, 0xffffffff, 0x01fe7f80, Math.imul(i + 1, 0x9e3779b1) >>> 0][i % 5]!
)
const quants = Uint32Array.from(
  { length: words * most },
  (_, i) => [0xffffffff, 0xffffffff, Math.imul(i + 7, 0x85ebca6b) >>> 0][i % 3]!
)
const initial = Int32Array.from({ length: words }, (_, i) => (i - 3) * 1_000_003)

const wanted = (count: number, mask: number, extra: boolean): Int32Array =>
  initial.map((start, i) =>
    Array.from({ length: count }, (_, j) => dot4I8(extremes[j * words + i]!, (quants[j * words + i]! & mask) >>> 0))
      .reduce((a, b) => a + b, extra ? start : 0)
  )

const masks = [0x01, 0x0f, 0x1f, 0x3f, 0x7f, 0xff].map((m) => m * byte)

describe.each(["plain", "relaxed"] as const)("%s", (simd) => {
  it.each(masks)("sums of products with bytes of mask %i are exact", (mask) => {
    for (const count of [1, 2, 3, most]) {
      for (const extra of [false, true]) {
        const [out] = execute(sumOfDots(count, mask, extra), [new Int32Array(words), initial, extremes, quants], [], {
          simd
        })
        assert.deepStrictEqual(out, wanted(count, mask, extra))
      }
    }
  })
})

const relaxed = (linear: UOp, simd: Wasm.Simd = "relaxed"): ReadonlyArray<string> =>
  String(Wasm.text("test", linear, { simd })).match(/i\d+x\d+\.relaxed_dot\S+/g) ?? []
const [inWords, inPairs] = ["i32x4.relaxed_dot_i8x16_i7x16_add_s", "i16x8.relaxed_dot_i8x16_i7x16_s"]

it("adds what fits 16 bits there", () => {
  expect(relaxed(sumOfDots(1, 0x7f * byte, true))).toEqual([inWords])
  expect(relaxed(sumOfDots(2, 0x7f * byte, true))).toEqual([inWords, inWords])
  expect(relaxed(sumOfDots(2, 0x3f * byte, false))).toEqual([inPairs, inPairs])
  // eight sums of pairs are at most 8 * 2 * 128 * 15 = 30720
  expect(relaxed(sumOfDots(9, 0x0f * byte, false)).toSorted()).toEqual([...Array<string>(8).fill(inPairs), inWords])
})

it("knows bytes of 7 bits through shifts, and leaves others to 16-bit products", () => {
  const of = (change: (w: UOp) => UOp): UOp =>
    kernel((b) => {
      const [out, x, w] = [b.param(0, DType.i32), b.param(1, DType.u32), b.param(2, DType.u32)]
      b.store(out, 0, dot(change(b.load(w, 0, { lanes })), b.load(x, 0, { lanes })))
    })
  const and = (x: UOp, mask: number): UOp => withLiteral("AND", x, mask)
  const high = (w: UOp): UOp => withLiteral("SHL", and(w, 0x03030303), 4)
  expect(relaxed(of((w) => Expr.alu("OR", and(w, 0x0f0f0f0f), high(w))))).toEqual([inWords])
  expect(relaxed(of((w) => withLiteral("SHR", and(w, 0xf0f0f0f0), 4)))).toEqual([inWords])
  expect(relaxed(of((w) => withLiteral("SHL", and(w, 0x0f0f0f0f), 4)))).toEqual([])
  expect(relaxed(of((w) => w))).toEqual([])
  expect(relaxed(of((w) => and(w, 0x0f0f0f0f)), "plain")).toEqual([])
})
