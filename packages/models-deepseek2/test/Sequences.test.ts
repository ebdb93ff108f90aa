import { describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { buffer } from "@tg/tensor/Tensor"
import { assertEachAsHidden } from "../../model-parts/test/support/sequences.ts"
import { layoutOf } from "@tg/gguf/Layout"
import type { BlockInput } from "../src/Block.ts"
import type { Config } from "../src/Config.ts"
import { reader } from "../src/Heads.ts"

const config = {
  heads: 2,
  latent: 8,
  plain: 6,
  rotated: 2,
  value: 4,
  rope: { base: 1e4, attentionFactor: 1, yarn: undefined }
} as Config
const layout = layoutOf("F32", [config.heads * (config.plain + config.value), config.latent])
const row = config.latent + config.rotated
const [sequence, sequences] = [4, 3]
const tokens = sequence * sequences

describe("attention of several sequences", () => {
  it("of each by itself is that of all with the others hidden", () => {
    const arena = new Arena()
    const query = buffer(arena, 0, { shape: [tokens, config.heads, config.plain + config.rotated], dtype: DType.f32 })
    const cache = buffer(arena, 1, { shape: [16, row], dtype: DType.f32 })
    const words = buffer(arena, 2, { shape: [layout.words], dtype: DType.u32 })
    const weights = (role: string) => role === "attn_kv_b" ? { layout, words } : undefined
    const input = { config, weights, activations: "float" } as BlockInput
    const shape = [tokens, config.heads, config.value]
    assertEachAsHidden(reader(input), { query, cache, sequence, shape, weights: words })
  })
})
