import { assert, describe, it } from "@effect/vitest"
import { h200 } from "@tg/core-uop/DeviceProfile"
import { known } from "@tg/models/Models"
import { Result } from "effect"
import { fullest, microsOf, paysTwice, type SizeCost } from "../src/StepCost.ts"
import { fromShape } from "../src/StepPlan.ts"

const shape = (name: string) => Result.getOrThrow(fromShape(name, known))
const glm = shape("glm-4.7-flash:q4_0")

describe("what steps of a few tokens take", () => {
  it("grows with the experts that some token has chosen, and with products", () => {
    const [one, two, sixteen, both] = [1, 2, 16, 32].map((tokens) => microsOf(glm, h200, tokens))
    assert.isTrue(one! < two! && two! < sixteen! && sixteen! < both!)
    // 41 of 64 experts by 16 tokens, 56 by 32: most of what a step reads
    assert.isBelow(both! / sixteen!, 56 / 41)
  })
  it("says where twice the tokens pay: not where products take longer than reading", () => {
    assert.isTrue(paysTwice(glm, h200, 16))
    assert.isTrue(paysTwice(shape("youtu-llm-2b:q4_0"), h200, 16))
    const slow = { ...h200, operationsPerByte: 1 }
    assert.isFalse(paysTwice(shape("llama-3.1-8b:q4_0"), slow, 16))
  })
})

describe("tokens that wait step after step", () => {
  const sizes: ReadonlyArray<SizeCost> = [[1, 2], [8, 4], [16, 6], [32, 8]].map(([tokens, micros]) => ({
    tokens: tokens!,
    micros: micros!
  }))
  it("take the step that computes most of them in the same time", () => {
    assert.deepStrictEqual([1, 8, 9, 11, 13, 16, 17, 21, 22, 40].map((n) => fullest(sizes, n)), [
      ...[1, 8, 8, 8, 16, 16, 16, 16, 32, 32]
    ])
  })
  it("are all taken where nothing is known of costs", () => assert.strictEqual(fullest([], 5), 5))
})
