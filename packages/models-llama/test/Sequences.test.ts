import { describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { buffer } from "@tg/tensor/Tensor"
import { assertEachAsHidden } from "../../model-parts/test/support/sequences.ts"
import { reader } from "../src/Cache.ts"
import type { Config } from "../src/Config.ts"

const config = { keyValueHeads: 2, headSize: 8 } as Config
const [sequence, sequences, headsPerKey] = [4, 3, 2]
const tokens = sequence * sequences

describe("attention of several sequences", () => {
  it("equals attention to all positions with those of other sequences hidden", () => {
    const arena = new Arena()
    const shape = [tokens, config.keyValueHeads, headsPerKey, config.headSize]
    const query = buffer(arena, 0, { shape, dtype: DType.f32 })
    const cache = buffer(arena, 1, { shape: [16, 2 * config.keyValueHeads * config.headSize], dtype: DType.f32 })
    assertEachAsHidden(reader(config), { query, cache, sequence, shape })
  })
})
