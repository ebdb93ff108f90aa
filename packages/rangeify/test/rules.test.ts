import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { counting } from "@tg/pattern-matcher/GraphRewrite"
import { assert, describe, it } from "@effect/vitest"
import { hoistFactors } from "../src/HoistFactors.ts"
import { mergeReductions } from "../src/MergeReductions.ts"

const arena = new Arena()
const row = Expr.range(arena, 4, 0, "GLOBAL")
const k = Expr.range(arena, 8, 1, "REDUCE")
const j = Expr.range(arena, 8, 2, "REDUCE")
const read = (slot: number, at: UOp): UOp =>
  Expr.load(Expr.element(arena.make("PARAM", DType.f32, [Expr.int(arena, 32)], { slot }), at))
const stored = (value: UOp): UOp =>
  arena.make("SINK", DType.none, [arena.make("END", DType.none, [Expr.store(read(0, row).src[0]!, value), row])])
const valueOf = (kernel: UOp): UOp => kernel.src[0]!.src[0]!.src[1]!

describe("rules of rangeify", () => {
  it("hoist/invariant-factors: sum_k s x[k] = s sum_k x[k]", () => {
    const [s, x] = [read(1, row), read(2, k)]
    const { counts, trace } = counting()
    arena.onRewrite = trace
    const kernel = hoistFactors(stored(Expr.reduce("ADD", Expr.mul(s, x), [k])))
    assert.strictEqual(valueOf(kernel), Expr.mul(Expr.reduce("ADD", x, [k]), s))
    assert.deepStrictEqual([...counts], [["hoist/invariant-factors", 1]])
  })

  it("hoist: what the loop changes stays, and so does a maximum", () => {
    const [s, x] = [read(1, row), read(2, k)]
    for (const value of [Expr.reduce("ADD", Expr.mul(x, x), [k]), Expr.reduce("MAX", Expr.mul(s, x), [k])]) {
      assert.strictEqual(valueOf(hoistFactors(stored(value))), value)
    }
  })

  it("merge/reductions: two sums over loops of one length share them; one that needs the other does not", () => {
    const [x, y] = [read(1, k), read(2, j)]
    const { counts, trace } = counting()
    arena.onRewrite = trace
    const apart = stored(Expr.add(Expr.reduce("ADD", x, [k]), Expr.reduce("ADD", y, [j])))
    const together = Expr.add(Expr.reduce("ADD", x, [k]), Expr.reduce("ADD", read(2, k), [k]))
    assert.strictEqual(valueOf(mergeReductions(apart)), together)
    assert.deepStrictEqual([...counts], [["merge/reductions", 1]])
    const after = stored(Expr.reduce("ADD", Expr.mul(y, Expr.reduce("ADD", x, [k])), [j]))
    assert.strictEqual(mergeReductions(after), after)
  })
})
