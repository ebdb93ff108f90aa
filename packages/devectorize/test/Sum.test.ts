import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { expression } from "@tg/core-uop/Print"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { assert, describe, it } from "@effect/vitest"
import { sum, tree } from "../src/Sum.ts"

const arena = new Arena()
const values = (dtype: DType.DType): ReadonlyArray<UOp> =>
  Array.from(
    { length: 8 },
    (_, slot) => Expr.load(Expr.element(arena.make("PARAM", dtype, [Expr.int(arena, 4)], { slot }), Expr.int(arena, 0)))
  )
const [a, b, c, d, e, s, t] = values(DType.f32) as [UOp, UOp, UOp, UOp, UOp, UOp, UOp]
const { add, mul } = Expr
const same = (made: UOp, wanted: UOp) => assert.strictEqual(expression(made), expression(wanted))

describe("sum", () => {
  it("applies a common factor once", () => {
    same(sum([mul(a, mul(b, s)), mul(c, mul(d, s))]), mul(add(mul(a, b), mul(c, d)), s))
  })

  it("applies nested factors where they are common", () => {
    const made = sum([mul(mul(s, t), a), mul(mul(s, t), b), mul(s, c), mul(s, d)])
    same(made, mul(add(mul(add(a, b), t), add(c, d)), s))
  })

  it("leaves other terms beside", () => {
    same(sum([mul(a, s), b, mul(c, s)]), add(mul(add(a, c), s), b))
    // a term that is the factor itself has nothing left inside
    same(sum([mul(a, s), s]), add(mul(a, s), s))
  })

  it("does not touch integers, whose products may wrap", () => {
    const [x, y, z] = values(DType.i32) as [UOp, UOp, UOp]
    same(sum([mul(x, z), mul(y, z)]), add(mul(x, z), mul(y, z)))
  })

  it("combines neighbours first", () => {
    assert.strictEqual(tree(["a", "b", "c", "d", "e"], (x, y) => `(${x}${y})`), "(((ab)(cd))e)")
    assert.strictEqual(tree(["a"], (x, y) => x + y), "a")
    same(sum([a, b, c, d, e]), add(add(add(a, b), add(c, d)), e))
  })
})
