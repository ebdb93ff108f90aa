import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import * as Nn from "@tg/tensor/Nn"
import { iota, type Tensor } from "@tg/tensor/Tensor"
import type { Build } from "../support/programs.ts"
import { launches, plainAndOnH200 } from "../support/rewrites.ts"

const [experts, used, width] = [20, 4, 64]

/** The weights of the chosen experts: the bias selects, the probabilities weigh. */
const route = (b: Build, logits: Tensor): Tensor => {
  // no two of them are equal
  const p = logits.add(iota(b.arena, experts).cast(DType.f32).mul(1 / 128)).sigmoid()
  const chosen = Nn.topK(p.add(b.f32(experts).mul(1 / 64)), used).indices
  const own = p.reshape([experts]).gather(chosen)
  return own.div(own.sum({ axis: -1, keepDims: true })).mul(1.8)
}

describe("a router", () => {
  it("from logits to the weights of the chosen: 3 launches become 1", () => {
    const made = plainAndOnH200((b) => [b.out(route(b, b.f32(1, experts).mul(0.25)))])
    assert.deepStrictEqual(launches(made), [3, 1])
  })

  it("with a product in front of it that is small enough for one workgroup: 4 launches become 1", () => {
    const logits = (b: Build): Tensor => Nn.linear(b.f32(1, width).mul(1 / 256), b.f32(experts, width))
    assert.deepStrictEqual(launches(plainAndOnH200((b) => [b.out(route(b, logits(b)))])), [4, 1])
  })
})
