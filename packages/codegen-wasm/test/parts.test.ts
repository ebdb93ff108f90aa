/** Kernels that are done in parts. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { evaluateIndex } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import { assert, describe, it } from "@effect/vitest"
import { nestOf } from "../src/internal/nest.ts"
import { f32 } from "./support/elements.ts"
import { execute } from "./support/execute.ts"
import { kernel } from "./support/linear.ts"

describe("parts", () => {
  /** out[t, i, j] = t + 10 i + 100 j + sum of x, whose sum stands in the outermost loop. */
  const nested = (innermost: "GLOBAL" | "LOOP") =>
    kernel((b) => {
      const out = b.param(0)
      const x = b.param(1)
      const count = b.add(Expr.variable(b.arena, "n", 1, 4))
      b.loop(count, "GLOBAL", (t) => {
        const sum = b.register(b.add(Expr.constant(b.arena, DType.f32, 0)))
        b.loop(2, "REDUCE", (k) => b.accumulate("ADD", sum, b.load(x, k)))
        b.loop(3, "GLOBAL", (i) => {
          b.loop(5, innermost, (j) => {
            const index = Expr.add(Expr.add(t, Expr.mul(i, 10)), Expr.mul(j, 100))
            const at = Expr.add(Expr.mul(Expr.add(Expr.mul(t, 3), i), 5), j)
            b.store(out, at, Expr.add(Expr.cast(index, DType.f32), sum))
          })
        })
      })
    })
  const expected = (n: number) =>
    f32(
      60,
      (i) => i >= n * 15 ? 0 : Math.floor(i / 15) + 10 * (Math.floor(i / 5) % 3) + 100 * (i % 5) + 3
    )

  it.each([["GLOBAL", 1], ["GLOBAL", 2], ["GLOBAL", 7], ["GLOBAL", 61], ["LOOP", 4]] as const)(
    "%s: %i parts are the whole",
    (innermost, parts) => {
      for (const n of [1, 2, 4]) {
        const [out] = execute(nested(innermost), [new Float32Array(60), f32(2, (i) => i + 1)], [n], { parts })
        assert.deepStrictEqual(out, expected(n))
      }
    }
  )

  const shape = (linear: UOp, n: number) => {
    const { iterations, perIteration, perPart } = nestOf(linear)
    return [iterations, perPart, perIteration].map((count) => evaluateIndex(count, { n }))
  }

  it("counts what is done for each part and each iteration", () => {
    // the sum: its start, two loads and two additions
    assert.deepStrictEqual(shape(nested("GLOBAL"), 2), [30, 5, 11])
    assert.deepStrictEqual(shape(nested("LOOP"), 2), [6, 5, 55])
  })

  it("does not divide what is stored by several loops", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      const one = b.add(Expr.constant(b.arena, DType.f32, 1))
      b.loop(4, "GLOBAL", (i) => b.store(out, i, one))
      b.loop(4, "GLOBAL", (i) => b.store(out, Expr.add(i, 4), one))
    })
    assert.deepStrictEqual(nestOf(linear).ranges, [])
    assert.deepStrictEqual(execute(linear, [new Float32Array(8)])[0], f32(8, () => 1))
  })
})
