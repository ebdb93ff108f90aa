import { assert, describe, it } from "@effect/vitest"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
import type { Build } from "../support/programs.ts"
import { launches, onH200, plainAndOnH200, type Version, withAndWithout } from "../support/rewrites.ts"

describe("around a product", () => {
  it("the norm in front of it: 2 launches become 1", () => {
    const made = withAndWithout((b, alone) => {
      const normed = Nn.rmsNorm(b.f32(1, 64), b.f32(64), 1e-5)
      return [b.out(Nn.linear(alone(normed), b.f32(24, 64)))]
    })
    assert.deepStrictEqual(launches(made), [2, 1])
  })

  it("the residual behind it: 2 launches become 1", () => {
    const made = withAndWithout((b, alone) => [
      b.out(b.f32(1, 24).add(alone(Nn.linear(b.f32(1, 64), b.f32(24, 64)))))
    ])
    assert.deepStrictEqual(launches(made), [2, 1])
  })

  it("the rounding to 8 bits behind it: 3 launches become 2", () => {
    // a block of 32 outputs is rounded by the workgroup that computes them; the next product reads bytes
    const made = plainAndOnH200((b) => {
      const inner = Int8.quantise(Nn.linear(b.f32(1, 32), b.f32(64, 32))).contiguous()
      const rows = { words: b.u32(16, 2, 2, 4), scale: b.f32(16, 2, 1), zero: 8, minimum: undefined }
      return [b.out(Int8.contract(inner, rows))]
    })
    assert.deepStrictEqual(launches(made), [3, 2])
  })
})

describe("products of bytes", () => {
  const rows = (b: Build, count: number) => ({
    words: b.u32(count, 2, 2, 4),
    scale: b.f32(count, 2, 1),
    zero: 8,
    minimum: undefined
  })

  it("the rounding in front of one: 2 launches become 1", () => {
    const version = (round: (x: Tensor) => Tensor | Int8.Blocks): Version => ({
      effects: (b) => [b.out(Int8.contract(round(b.f32(1, 64)), rows(b, 1024)))],
      limits: onH200
    })
    assert.deepStrictEqual(launches([version((x) => Int8.quantise(x).contiguous()), version(Int8.blocks)]), [2, 1])
  })

  it("the rounding in front of two: 5 launches become 1", () => {
    // the scales and sums of both, their quants, and two products, of which nothing is staged without costs
    const made = plainAndOnH200((b) => {
      const x = Int8.blocks(b.f32(1, 64))
      return [1024, 2048].map((count) => b.out(Int8.contract(x, rows(b, count))))
    })
    assert.deepStrictEqual(launches(made), [5, 1])
  })
})

describe("products of chosen experts", () => {
  const [experts, used, width, hidden] = [6, 2, 32, 24]
  const expert = (b: { readonly f32: (...shape: ReadonlyArray<number>) => Tensor }, rows: number, columns: number) =>
    b.f32(experts, rows, columns)

  it("gate, up, silu and their product: 3 launches become 1", () => {
    const made = withAndWithout((b, alone) => {
      const [x, chosen] = [b.f32(1, 1, width), b.u32(1, used).and(3)]
      const [gate, up] = [0, 1].map(() => alone(Nn.contract(x, expert(b, hidden, width).gather(chosen), 1)))
      return [b.out(gate!.silu().mul(up!))]
    })
    assert.deepStrictEqual(launches(made), [3, 1])
  })

  it("down, the experts' weights, their sum, the shared expert and the residual: 4 launches become 1", () => {
    const made = withAndWithout((b, alone) => {
      const [inner, chosen, weights] = [b.f32(1, used, hidden), b.u32(1, used).and(3), b.f32(1, used)]
      // one sum over the experts and over what is between them
      const weighed = alone(inner.mul(weights.unsqueeze(-1))).unsqueeze(2)
      const mixed = alone(weighed.mul(expert(b, width, hidden).gather(chosen)).sum({ axis: [1, -1] }))
      const shared = alone(Nn.linear(b.f32(1, hidden), b.f32(width, hidden)))
      return [b.out(b.f32(1, width).add(mixed).add(shared))]
    })
    assert.deepStrictEqual(launches(made), [4, 1])
  })
})
