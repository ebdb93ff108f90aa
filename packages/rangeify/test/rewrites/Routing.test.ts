import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import * as Nn from "@tg/tensor/Nn"
import { iota, type Tensor } from "@tg/tensor/Tensor"
import type { Build } from "../support/programs.ts"
import { launches, plainAndOnH200, withAndWithout } from "../support/rewrites.ts"

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
  it("from logits to the weights of the chosen: 1 launch, whatever launches cost", () => {
    const made = plainAndOnH200((b) => [b.out(route(b, b.f32(1, experts).mul(0.25)))])
    assert.deepStrictEqual(launches(made), [1, 1])
  })

  it("with a product in front of it that is small enough for one workgroup: 2 launches become 1", () => {
    const logits = (b: Build): Tensor => Nn.linear(b.f32(1, width).mul(1 / 256), b.f32(experts, width))
    assert.deepStrictEqual(launches(plainAndOnH200((b) => [b.out(route(b, logits(b)))])), [2, 1])
  })

  it("wherever the chosen are read, a row of the matrices for each: 2 launches become 1", () => {
    const chosenRows = (b: Build, alone: (x: Tensor) => Tensor): Tensor => {
      const p = b.f32(1, experts).sigmoid().add(b.f32(experts).mul(1 / 64))
      const chosen = alone(Nn.topK(p, used).indices)
      return b.f32(experts, width).gather(chosen).mul(b.f32(1, width))
    }
    assert.deepStrictEqual(launches(withAndWithout((b, alone) => [b.out(chosenRows(b, alone))])), [2, 1])
  })
})
