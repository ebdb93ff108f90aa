import { afterAll, assert, describe, it } from "@effect/vitest"
import { DType, Expr } from "@tg/core-uop"
import * as Dawn from "./dawn.ts"
import { Kernel } from "./kernels.ts"
import { caps, render } from "./render.ts"

afterAll(Dawn.close)

const unclamped = { ...caps, unclamped: true }
/** The accesses of a kernel, on a device that does not clamp indices. */
const accesses = async (build: (k: Kernel) => void): Promise<ReadonlyArray<string>> => {
  const k = new Kernel()
  build(k)
  const body = (await render(k, unclamped)).split("fn main")[1]!
  return [...body.matchAll(/\b(?:data|local)\d+\[[^;]*?\](?= =|;|,|\)|\.)/g)].map(([text]) => text)
}

describe("indices on a device that does not clamp them", () => {
  it("stand as they are where they lie in their buffers", async () => {
    const found = await accesses((k) => {
      const at = k.special("gidx0", 64)
      k.store(k.param(1, DType.f32, 64), at, k.load(k.param(0, DType.f32, 64), at))
    })
    assert.deepStrictEqual(found, ["data0[gidx0]", "data1[gidx0]"])
  })

  it("are clamped where they are longer than a buffer, or come from memory", async () => {
    const found = await accesses((k) => {
      const i = k.special("gidx0", 65)
      const named = Expr.cast(k.load(k.param(0, DType.u32, 64), i), DType.index)
      k.store(k.param(1, DType.f32, 65), i, k.load(k.param(2, DType.f32, 10), named))
    })
    assert.deepStrictEqual(found, [
      "data0[min(u32(gidx0), 63u)]",
      "data2[min(u32(i32(x0)), 9u)]",
      "data1[gidx0]"
    ])
  })

  it("of vectors are clamped so that the whole vector lies in the buffer", async () => {
    const found = await accesses((k) => {
      const at = Expr.mul(k.special("gidx0", 100), 4)
      k.store(k.param(1, DType.f32, 400), at, k.load(k.param(0, DType.f32, 30), at, 4))
    })
    assert.deepStrictEqual(found, ["data0[min(u32(gidx0), 6u)]", "data1[gidx0]"])
  })

  it("of stores are known by their gates and branches, those of gated loads are not", async () => {
    const found = await accesses((k) => {
      const i = k.special("gidx0", 100)
      const gate = Expr.lt(i, 10)
      const x = k.load(k.param(0, DType.f32, 10), i, 1, gate)
      k.store(k.param(1, DType.f32, 10), i, x, gate)
      k.branch(Expr.not(Expr.lt(i, 40)), () => k.store(k.param(2, DType.f32, 60), Expr.sub(i, 40), x))
    })
    assert.deepStrictEqual(found, ["data0[min(u32(gidx0), 9u)]", "data1[gidx0]", "data2[gidx0 - 40]"])
  })
})
