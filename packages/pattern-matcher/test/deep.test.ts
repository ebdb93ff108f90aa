import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { expect, it } from "vitest"
import * as Symbolic from "../src/Symbolic.ts"

it("simplifies values 50 000 operations deep", () => {
  const arena = new Arena()
  const buffer = arena.make("PARAM", DType.f32, [Expr.int(arena, 8)], { slot: 0 })
  const x = Expr.load(Expr.element(buffer, Expr.int(arena, 0)))
  let top: UOp = x
  for (let i = 0; i < 50_000; i++) top = i % 2 === 0 ? Expr.add(top, x) : Expr.mul(top, 1)
  let depth = 0
  for (let node = Symbolic.simplify(top); node !== x; node = node.src[0]!) depth++
  expect(depth).toBe(25_000)
})

it("collects a sum of 5 000 operations", () => {
  const arena = new Arena()
  const v = Expr.variable(arena, "v", 0, 9)
  let top: UOp = v
  for (let i = 0; i < 5_000; i++) top = Expr.add(top, i % 2 === 0 ? v : Expr.int(arena, 1))
  expect(Symbolic.simplify(top)).toBe(Expr.add(Expr.mul(v, 2501), 2500))
})

it("keeps every rewrite of a long sum of remainders cheap", () => {
  const arena = new Arena()
  let top: UOp = Expr.int(arena, 0)
  for (let i = 0; i < 400; i++) {
    top = Expr.add(top, Expr.mul(Expr.floormod(Expr.add(Expr.range(arena, 16, i, "LOOP"), i), 5), 7))
  }
  let fired = 0
  Symbolic.simplify(top, { trace: () => fired++ })
  // one for each sum, each remainder, each argument, and the reordering of what they leave
  expect(fired).toBeLessThan(400 * 6)
})
