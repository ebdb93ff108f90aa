import { assert, describe, it } from "@effect/vitest"
import * as Nn from "@tg/tensor/Nn"
import { type Effects, launches, plain } from "../support/rewrites.ts"

describe("kernels that do not need each other", () => {
  it("run side by side: 4 launches become 2", () => {
    // two products of one row, and what follows each of them
    const effects: Effects = (b) => {
      const x = b.f32(1, 32)
      return ["query", "key"].map((name) => {
        const low = Nn.linear(x, b.f32(8, 32)).contiguous().label(name)
        return b.out(Nn.linear(low, b.f32(16, 8)))
      })
    }
    const made = [{ effects, limits: plain }, { effects, limits: { ...plain, joinsKernels: true } }] as const
    assert.deepStrictEqual(launches(made), [4, 2])
  })
})
