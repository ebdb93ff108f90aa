import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { Arena } from "@tg/core-uop/UOp"
import { whole } from "@tg/model-parts/Attention"
import { buffer, scalar } from "@tg/tensor/Tensor"
import { reader } from "../src/Cache.ts"
import type { Config } from "../src/Config.ts"

const config = { heads: 2, latent: 8, rotated: 2 } as Config
const row = config.latent + config.rotated
const [sequence, sequences] = [4, 3]
const tokens = sequence * sequences

describe("attention of several sequences", () => {
  it("of each by itself is that of all with the others hidden", () => {
    const arena = new Arena()
    const query = buffer(arena, 0, { shape: [tokens, config.heads, row], dtype: DType.f32 })
    const cache = buffer(arena, 1, { shape: [16, row], dtype: DType.f32 })
    const input = { order: "tokens", startPos: scalar(arena, 0), sequence } as const
    const { each, ...masking } = reader(config)
    assert.isDefined(each)
    for (const window of [undefined, 2]) {
      const roots = [{ ...masking, each }, masking].map((by) => whole(by, { ...input, window }, query, cache))
      const buffers = new Map([query, cache].map(({ node, shape }, seed) => {
        const size = shape.reduce<number>((n, d) => n * Number(d), 1)
        return [node, Float32Array.from({ length: size }, (_, i) => Math.sin(i * (i + seed + 1)))]
      }))
      const [own, hidden] = evaluate(roots.map(({ node }) => node), { buffers, vars: {} })
      assert.deepStrictEqual(own!.shape, [tokens, config.heads, config.latent])
      // hidden positions have weights of exactly 0; a sum of the others and of zeros is rounded alike
      own!.data.forEach((x, i) => assert.closeTo(x, hidden!.data[i]!, 1e-6, `element ${i}`))
    }
  })
})
