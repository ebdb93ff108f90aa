import { assert, describe, it } from "@effect/vitest"
import * as Family from "@tg/model-parts/Family"
import type { Shape } from "@tg/model-parts/Shape"
import { Result } from "effect"
import { llama } from "../src/Family.ts"

const families: Family.Registry = { families: [llama] }
const shape = (name: string): Shape => Result.getOrThrow(Family.shapeOf(families, name)).shape
const parameters = (name: string): number =>
  shape(name).tensors.filter(({ name }) => name !== "rope_freqs.weight")
    .reduce((sum, t) => sum + t.dims.reduce((n, dim) => n * dim, 1), 0)
const gigabytes = (name: string): number => shape(name).tensors.reduce((sum, t) => sum + t.bytes, 0) / 1e9

describe("Shapes", () => {
  it("has as many parameters as the published models", () => {
    assert.strictEqual(parameters("llama-3.1-8b:f16"), 8_030_261_248)
    assert.strictEqual(parameters("llama-3.2-1b:f16"), 1_235_814_400)
    assert.strictEqual(parameters("mistral-7b:f16"), 7_248_023_552)
    assert.strictEqual(parameters("qwen3-8b:f16"), 8_190_735_360)
    assert.strictEqual(parameters("qwen3-30b-a3b:f16"), 30_532_122_624)
    assert.closeTo(parameters("gemma-3-4b:f16") / 1e9, 3.88, 0.01)
    assert.closeTo(parameters("glm-4.5-air:f16") / 1e9, 106.85, 0.1)
  })

  it("is as large as files with the same mix", () => {
    // published to three digits
    assert.closeTo(gigabytes("llama-3.1-8b:q4_0"), 4.66, 0.02)
    assert.closeTo(gigabytes("llama-3.1-8b:q4_k_m"), 4.92, 0.02)
    assert.closeTo(gigabytes("qwen3-8b:q4_k_m"), 5.03, 0.02)
    assert.closeTo(gigabytes("qwen3-30b-a3b:q4_k_m"), 18.56, 0.1)
  })

  it("has Llama 3's divisors", () => {
    const { values } = shape("llama-3.1-8b:q4_0").tensorsByName.get("rope_freqs.weight")!
    const found = Array.from(values!.subarray(28, 36), (x) => Math.round(x * 1e4) / 1e4)
    assert.deepStrictEqual(found, [1, 1.2075, 1.5534, 2.0263, 2.6945, 3.6843, 5.2573, 8])
  })

  it.each(Family.shapeNames(families))("%s is a model that can be loaded", (name) => {
    const found = shape(name)
    const { weights } = Result.getOrThrow(llama.modelOf(found))
    assert.strictEqual(weights.all.length, found.tensors.length)
  })
})
