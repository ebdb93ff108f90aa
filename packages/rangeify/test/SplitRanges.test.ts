import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import * as Expr from "@tg/core-uop/Expr"
import * as Print from "@tg/core-uop/Print"
import { Arena, rangeArg, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { renumberRanges, splitRanges } from "../src/SplitRanges.ts"

const arena = new Arena()
const param = (slot: number, length: number): UOp => arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })

/** `out[i] = in[at(i)]` for i < size. */
const copy = (size: number, at: (i: UOp) => UOp): UOp => {
  const i = Expr.range(arena, size, 0, "GLOBAL")
  const store = Expr.store(Expr.element(param(0, size), i), Expr.load(Expr.element(param(1, size), at(i))))
  return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])])
}

/** Sizes of the loops, outputs first. */
const sizes = (kernel: UOp): ReadonlyArray<number> =>
  kernel.src.flatMap((end) => end.src.slice(1)).map((r) => Number(r.src[0]!.arg))

const run = (kernel: UOp, size: number): Float32Array => {
  const out = new Float32Array(size)
  evaluateKernel(kernel, [out, Float32Array.from({ length: size }, (_, i) => i)])
  return out
}

describe("SplitRanges", () => {
  it("splits a loop that is used through a quotient and a remainder", () => {
    const transpose = copy(32, (i) => Expr.add(Expr.mul(Expr.floormod(i, 8), 4), Expr.floordiv(i, 8)))
    const split = Symbolic.simplify(splitRanges(transpose))
    assert.deepStrictEqual(sizes(split), [4, 8])
    assert.isFalse(toposort(split).some((n) => n.op === "FLOORDIV" || n.op === "FLOORMOD"))
    assert.deepStrictEqual(run(split, 32), run(transpose, 32))
  })

  it("splits by several divisors, each dividing the one before", () => {
    const at = (i: UOp): UOp =>
      Expr.add(
        Expr.add(Expr.mul(Expr.floormod(i, 4), 6), Expr.floordiv(i, 12)),
        Expr.mul(Expr.floormod(Expr.floordiv(i, 4), 3), 2)
      )
    const split = Symbolic.simplify(splitRanges(copy(24, at)))
    assert.deepStrictEqual(sizes(split), [2, 3, 4])
    assert.deepStrictEqual(run(split, 24), run(copy(24, at), 24))
  })

  it("leaves loops alone whose size the divisor does not divide, or that are symbolic", () => {
    const odd = copy(30, (i) => Expr.floordiv(i, 4))
    assert.strictEqual(splitRanges(odd), odd)
    const n = Expr.variable(arena, "n", 1, 32)
    const i = Expr.range(arena, n, 0, "GLOBAL")
    const store = Expr.store(Expr.element(param(0, 32), i), Expr.load(Expr.element(param(1, 32), Expr.floordiv(i, 8))))
    const symbolic = arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])])
    assert.strictEqual(splitRanges(symbolic), symbolic)
  })

  it("splits a multiple of a symbolic number into that number and the factor", () => {
    const n = Expr.variable(arena, "n", 1, 4)
    const i = Expr.range(arena, Symbolic.simplify(Expr.mul(n, 16)), 0, "GLOBAL")
    const store = Expr.store(Expr.element(param(0, 64), i), Expr.load(Expr.element(param(1, 64), i)))
    const kernel = arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])])
    const split = Symbolic.simplify(splitRanges(kernel))
    assert.deepStrictEqual(split.src[0]!.src.slice(1).map((r) => r.src[0]!), [n, Expr.int(arena, 16)])
    const out = new Float32Array(64)
    evaluateKernel(split, [out, Float32Array.from({ length: 64 }, (_, i) => i)], { n: 3 })
    assert.deepStrictEqual([...out], Array.from({ length: 64 }, (_, i) => i < 48 ? i : 0))
  })

  it("splits reductions into reductions", () => {
    const r = Expr.range(arena, 32, 1, "REDUCE")
    const x = Expr.load(Expr.element(param(1, 4), Expr.floordiv(r, 8)))
    const store = Expr.store(Expr.element(param(0, 1), Expr.int(arena, 0)), Expr.reduce("ADD", x, [r]))
    const kernel = arena.make("SINK", DType.none, [arena.make("END", DType.none, [store])])
    const reduction = toposort(splitRanges(kernel)).find((n) => n.op === "REDUCE")!
    assert.deepStrictEqual(reduction.src.slice(1).map((s) => [Number(s.src[0]!.arg), rangeArg(s).axis]), [
      [4, "REDUCE"],
      [8, "REDUCE"]
    ])
  })

  it("numbers loops from 0, outputs first, so that equal kernels are one node", () => {
    const made = (first: number): UOp => {
      const i = Expr.range(arena, 4, first, "GLOBAL")
      const r = Expr.range(arena, 8, first + 5, "REDUCE")
      const x = Expr.load(Expr.element(param(1, 32), Expr.add(Expr.mul(i, 8), r)))
      const store = Expr.store(Expr.element(param(0, 4), i), Expr.reduce("ADD", x, [r]))
      return renumberRanges(arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])]))
    }
    assert.strictEqual(made(3), made(40))
    assert.strictEqual(
      Print.expression(made(3).src[0]!),
      `end(store(p0[r0], reduce{{"op":"ADD","axes":[]}}(p1[((r0 * 8) + r1)], r1)), r0)`
    )
  })
})
