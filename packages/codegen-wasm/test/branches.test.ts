/** Gated accesses and branches. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { assert, describe, it } from "@effect/vitest"
import { f32 } from "./support/elements.ts"
import { execute } from "./support/execute.ts"
import { kernel } from "./support/linear.ts"

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
