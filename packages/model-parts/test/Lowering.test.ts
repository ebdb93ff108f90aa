import { h200, wasm } from "@tg/core-uop/DeviceProfile"
import { describe, expect, it } from "vitest"
import { cheapest, type MixtureSize, ofMixture, usualTokens } from "../src/Lowering.ts"

/** A layer of GLM-4.7-Flash and of Qwen3-30B-A3B in blocks of 4 bits, and of a model that fits a page. */
const glm = { count: 64, used: 4, values: 3 * 1536 * 2048, bytes: 3 * 1536 * 2048 * 0.5625 }
const qwen = { count: 128, used: 8, values: 3 * 768 * 2048, bytes: 3 * 768 * 2048 * 0.5625 }
const tiny = { count: 8, used: 2, values: 3 * 256 * 32, bytes: 3 * 256 * 32 * 4 }

describe("the experts of many tokens", () => {
  const chosen = (size: MixtureSize, tokens: number, profile = h200): string =>
    cheapest(ofMixture(size, { tokens, profile, isBatch: true })).name

  it("are grouped where a weight that is unpacked for a group saves more than places without a token cost", () => {
    for (const size of [glm, qwen]) {
      expect([16, 32, 64, 512].map((tokens) => chosen(size, tokens))).toEqual([
        "token by token",
        "token by token",
        "grouped by expert",
        "grouped by expert"
      ])
      expect(chosen(size, 128, wasm)).toBe("grouped by expert")
    }
    // of more experts fewer share one
    expect(chosen({ ...qwen, count: 512 }, 64)).toBe("token by token")
  })

  it("are not where launches take longer than the products", () => {
    expect(chosen(tiny, 128)).toBe("token by token")
    expect(chosen(tiny, 128, wasm)).toBe("grouped by expert")
    expect(chosen(tiny, 128, { ...h200, dispatchMicros: 0 })).toBe("grouped by expert")
  })

  it("are not where tokens are no tiles: that is not legal", () => {
    expect(ofMixture(glm, { tokens: 512, isBatch: false }).map(({ name }) => name)).toEqual(["token by token"])
  })

  it("are counted for a quarter of a batch on a GPU, and for all of one on a processor", () => {
    expect([usualTokens(512, h200), usualTokens(128, wasm), usualTokens(2, h200)]).toEqual([128, 128, 1])
  })
})
