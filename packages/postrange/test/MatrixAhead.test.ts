import { assert, describe, it } from "@effect/vitest"
import { h200 } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena } from "@tg/core-uop/UOp"
import { aheadIn } from "../src/MatrixAhead.ts"

/** A kernel of so many workgroups. */
const kernel = (workgroups: number) => {
  const arena = new Arena()
  const own = Expr.range(arena, workgroups, 0, "GLOBAL")
  const out = arena.make("PARAM", DType.f32, [Expr.int(arena, workgroups)], { slot: 0 })
  return arena.make("SINK", DType.none, [
    arena.make("END", DType.none, [Expr.store(Expr.element(out, own), arena.make("CONST", DType.f32, [], 1)), own])
  ])
}

const profile = { ...h200, registerBytes: 2 ** 18 }

/** The tile of a product of 16 rows with weights, of scores of a piece, and of its mix. */
const weights = { fragments: [1, 1], words: 80 * 32, threads: 128 } as const
const scores = { fragments: [1, 1], words: 96 * 32, threads: 256 } as const
const mix = { fragments: [2, 4], words: (32 * 512 + 32 * 32) / 2, threads: 256 } as const

describe("steps that are on their way", () => {
  it("are as many as there are registers for, where nobody else hides the latency", () => {
    const ahead = aheadIn(kernel(160), 1, profile)
    assert.deepStrictEqual([weights, scores, mix].map(ahead), [4, 4, 4])
    const few = aheadIn(kernel(160), 1, { ...profile, registerBytes: 2 ** 17 })
    assert.deepStrictEqual([weights, scores, mix].map(few), [4, 4, 1])
  })

  it("are one where processors have many workgroups, but for those of several products", () => {
    assert.strictEqual(aheadIn(kernel(4096), 1, profile)(weights), 1)
    assert.strictEqual(aheadIn(kernel(4096), 2, profile)(scores), 4)
  })
})
