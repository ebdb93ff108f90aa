/** Products of bytes: the same numbers with relaxed SIMD and without, at the ends of every range. */
import * as DType from "@tg/core-uop/DType"
import { dot4I8 } from "@tg/core-uop/EvaluateOps"
import * as Expr from "@tg/core-uop/Expr"
import type { UOp } from "@tg/core-uop/UOp"
import { assert, describe, expect, it } from "@effect/vitest"
import * as Wasm from "../src/Wasm.ts"
import { map } from "./support/elements.ts"
import { execute } from "./support/execute.ts"
import { kernel, type LinearBuilder } from "./support/linear.ts"

const dot = (a: UOp, b: UOp): UOp => Expr.alu("DOT4I8", a, b)
const lanes = 4
const withLiteral = (op: "AND" | "SHL" | "SHR", x: UOp, value: number): UOp =>
  Expr.alu(op, x, Expr.splat(Expr.constant(x.arena, DType.u32, value >>> 0), lanes))
const byte = 0x01010101

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

describe.each(["plain", "words", "pairs"] as const)("%s", (simd) => {
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

/** The instructions that matter, in the order of the text. */
const used = (linear: UOp, simd: Wasm.Simd): ReadonlyArray<string> =>
  String(Wasm.text("test", linear, { simd })).match(/i\d+x\d+\.(relaxed_dot|extadd|dot_|add)\w*/g) ?? []
const [dotOfWords, dotOfPairs] = ["i32x4.relaxed_dot_i8x16_i7x16_add_s", "i16x8.relaxed_dot_i8x16_i7x16_s"]
const [addPairs, widen] = ["i16x8.add", "i32x4.extadd_pairwise_i16x8_s"]
const count = (list: ReadonlyArray<string>, name: string): number => list.filter((x) => x === name).length

it("adds four products to a word", () => {
  expect(used(sumOfDots(1, 0x7f * byte, true), "words")).toEqual([dotOfWords])
  expect(used(sumOfDots(3, 0x0f * byte, false), "words")).toEqual([dotOfWords, dotOfWords, dotOfWords])
})

it("adds products in 16 bits while they fit", () => {
  expect(used(sumOfDots(1, 0x7f * byte, true), "pairs")).toEqual([dotOfWords])
  expect(used(sumOfDots(2, 0x7f * byte, false), "pairs")).toEqual([dotOfWords, dotOfWords])
  expect(used(sumOfDots(2, 0x3f * byte, false), "pairs")).toEqual([widen, addPairs, dotOfPairs, dotOfPairs])
  // eight sums of two products are at most 8 * 2 * 128 * 15 = 30720
  const nine = used(sumOfDots(9, 0x0f * byte, false), "pairs")
  expect([dotOfPairs, addPairs, widen, dotOfWords].map((name) => count(nine, name))).toEqual([8, 7, 1, 1])
})

/** out[i] = the sum of the lanes of `x dot (w[i] & mask)`, four rows at once, as sums of neighbours of neighbours. */
const rows = (mask: number, also?: (b: LinearBuilder, first: UOp) => void): UOp =>
  kernel((b) => {
    const [out, x, w] = [b.param(0, DType.i32), b.param(1, DType.u32), b.param(2, DType.u32)]
    const dots = [0, 4, 8, 12].map((at) =>
      b.add(dot(b.load(x, 0, { lanes }), withLiteral("AND", b.load(w, at, { lanes }), mask)))
    )
    const join = (u: UOp, v: UOp): UOp => {
      const take = (i: number): UOp =>
        b.arena.make(
          "STACK",
          u.dtype,
          [[u, i], [u, i + 2], [v, i], [v, i + 2]].map(([s, j]) => Expr.lane(s as UOp, j as number))
        )
      return b.add(Expr.add(take(0), take(1)))
    }
    b.store(out, 0, join(join(dots[0]!, dots[1]!), join(dots[2]!, dots[3]!)))
    also?.(b, dots[0]!)
  })

describe("sums over the lanes of four rows", () => {
  const weights = quants.subarray(0, 16)
  const laneSums = (mask: number): Int32Array =>
    Int32Array.from(
      [0, 1, 2, 3],
      (row) => [0, 1, 2, 3].reduce((sum, i) => sum + dot4I8(extremes[i]!, (weights[4 * row + i]! & mask) >>> 0), 0)
    )

  it.each(masks)("are exact with bytes of mask %i", (mask) => {
    for (const simd of ["plain", "words", "pairs"] as const) {
      const [out] = execute(rows(mask), [new Int32Array(4), extremes, weights], [], { simd })
      assert.deepStrictEqual(out, laneSums(mask))
    }
  })

  it("are widened once, when they are complete or fit no more", () => {
    const of = (mask: number): ReadonlyArray<number> => {
      const list = used(rows(mask), "pairs")
      return [dotOfPairs, addPairs, widen, "i32x4.add"].map((name) => count(list, name))
    }
    expect(of(0x0f * byte)).toEqual([4, 3, 1, 0])
    expect(of(0x3f * byte)).toEqual([4, 2, 2, 1])
  })

  it("are of words where one of them is also used as such", () => {
    const linear = rows(
      0x0f * byte,
      (b, first) => b.store(b.param(3, DType.i32), 0, Expr.mul(first, Expr.like(first, 3)))
    )
    const [out, , , also] = execute(linear, [new Int32Array(4), extremes, weights, new Int32Array(4)], [], {
      simd: "pairs"
    })
    assert.deepStrictEqual(out, laneSums(0x0f * byte))
    const first = Int32Array.from([0, 1, 2, 3], (i) => 3 * dot4I8(extremes[i]!, weights[i]! & (0x0f * byte)))
    assert.deepStrictEqual(also, first)
  })
})

it("knows bytes of 7 bits through shifts, and leaves others to 16-bit products", () => {
  const of = (change: (w: UOp) => UOp, simd: Wasm.Simd = "words"): ReadonlyArray<string> =>
    used(
      kernel((b) => {
        const [out, x, w] = [b.param(0, DType.i32), b.param(1, DType.u32), b.param(2, DType.u32)]
        b.store(out, 0, dot(change(b.load(w, 0, { lanes })), b.load(x, 0, { lanes })))
      }),
      simd
    )
  const and = (x: UOp, mask: number): UOp => withLiteral("AND", x, mask)
  const high = (w: UOp): UOp => withLiteral("SHL", and(w, 0x03030303), 4)
  const plain = ["i32x4.add", "i32x4.dot_i16x8_s", "i32x4.dot_i16x8_s"]
  expect(of((w) => Expr.alu("OR", and(w, 0x0f0f0f0f), high(w)))).toEqual([dotOfWords])
  expect(of((w) => withLiteral("SHR", and(w, 0xf0f0f0f0), 4))).toEqual([dotOfWords])
  expect(of((w) => withLiteral("SHL", and(w, 0x0f0f0f0f), 4))).toEqual(plain)
  expect(of((w) => w)).toEqual(plain)
  expect(of((w) => and(w, 0x0f0f0f0f), "plain")).toEqual(plain)
})
