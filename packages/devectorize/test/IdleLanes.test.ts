import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { ReduceOp } from "@tg/core-uop/Op"
import { expression } from "@tg/core-uop/Print"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { withoutIdleLanes } from "../src/IdleLanes.ts"

const arena = new Arena()
const vector = DType.withLanes(DType.f32, 4)
const range = Expr.range(arena, 8, 0, "REDUCE")
const value = (slot: number): UOp =>
  Expr.load(Expr.element(arena.make("PARAM", DType.f32, [Expr.int(arena, 8)], { slot }), range))
const [a, b, c] = [value(0), value(1), value(2)]
const constant = (x: number): UOp => Expr.constant(arena, DType.f32, x)
const zero = constant(0)
const stack = (...lanes: ReadonlyArray<UOp>): UOp => arena.make("STACK", vector, lanes)
const reduced = (x: UOp, op: ReduceOp = "ADD"): UOp => Expr.reduce(op, x, [range])
const becomes = (x: UOp, wanted: UOp) => assert.strictEqual(expression(withoutIdleLanes(x)), expression(wanted))

describe("reductions of vectors", () => {
  it("keep the lanes in which something is reduced, of several copies, too", () => {
    becomes(reduced(stack(zero, a, zero, zero)), stack(zero, reduced(a), zero, zero))
    becomes(
      reduced(Expr.add(stack(zero, a, zero, b), stack(zero, c, zero, zero))),
      stack(zero, reduced(Expr.add(a, c)), zero, reduced(Expr.add(b, zero)))
    )
  })

  it("know the neutral element of their operation", () => {
    const least = Expr.identity(arena, "MAX", DType.f32)
    becomes(reduced(stack(least, a, least, least), "MAX"), stack(least, reduced(a, "MAX"), least, least))
    const zeros = reduced(stack(zero, a, zero, zero), "MAX")
    becomes(zeros, zeros)
  })

  it("stay whole where each lane has something", () => {
    for (const x of [reduced(stack(a, b, a, c)), reduced(Expr.mul(stack(zero, a, b, c), stack(a, a, a, a)))]) {
      becomes(x, x)
    }
  })

  it("leave nothing to exchange between threads for an idle lane", () => {
    const threads = Expr.range(arena, 4, 1, "GROUP")
    const grouped = (x: UOp): UOp => arena.make("GROUP_REDUCE", DType.f32, [x, threads], { op: "ADD", threads: 4 })
    const sum = reduced(stack(zero, a, zero, zero))
    becomes(
      stack(...[0, 1, 2, 3].map((i) => grouped(Expr.lane(sum, i)))),
      stack(zero, grouped(reduced(a)), zero, zero)
    )
  })
})
