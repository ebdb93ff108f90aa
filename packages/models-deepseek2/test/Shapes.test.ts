import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Family from "@tg/model-parts/Family"
import type { Shape, ShapeTensor } from "@tg/model-parts/Shape"
import { Result } from "effect"
import * as Config from "../src/Config.ts"
import { deepseek2 } from "../src/Family.ts"
import * as Shapes from "../src/Shapes.ts"
import * as Weights from "../src/Weights.ts"

const families: Family.Registry = { families: [deepseek2] }
const shape = (name: string, layers?: number): Shape => Result.getOrThrow(Family.shapeOf(families, name, layers)).shape
const gigabytes = (name: string): number => shape(name).tensors.reduce((sum, t) => sum + t.bytes, 0) / 1e9
const parameters = (name: string): number =>
  shape(name).tensors.reduce((sum, t) => sum + t.dims.reduce((n, dim) => n * dim, 1), 0)

describe("Shapes", () => {
  it("has as many tensors and parameters as the published files", () => {
    const glm = shape("glm-4.7-flash:q4_0").tensors
    assertEquals([glm.length, glm.filter((t) => t.type === "F32").length], [844, 281])
    assert.strictEqual(shape("deepseek-v2-lite:q4_0").tensors.length, 404)
    assert.strictEqual(shape("youtu-llm-2b:q4_0").tensors.length, 418)
    assert.strictEqual(parameters("youtu-llm-2b:f16"), 1_961_560_064)
    assert.closeTo(parameters("glm-4.7-flash:f16") / 1e9, 29.94, 0.005)
    assert.closeTo(parameters("deepseek-v2-lite:f16") / 1e9, 15.71, 0.005)
  })

  it("is as large as files with the same mix", () => {
    // published to three or four digits
    assert.closeTo(gigabytes("glm-4.7-flash:q4_k_m"), 18.3, 0.01)
    assert.closeTo(gigabytes("glm-4.7-flash:q4_0"), 17.2, 0.05)
    assert.closeTo(gigabytes("deepseek-v2-lite:q4_0"), 8.9, 0.01)
    assert.closeTo(gigabytes("deepseek-v2-lite:q4_k_m"), 10.36, 0.01)
    assert.closeTo(gigabytes("youtu-llm-2b:q4_0"), 1.17, 0.005)
    assert.closeTo(gigabytes("youtu-llm-2b:q4_k_m"), 1.23, 0.005)
  })

  it("mixes the types that a published file lists", () => {
    const counts = Map.groupBy(shape("glm-4.7-flash:q4_k_m").tensors, (t) => t.type)
    const found = ["Q4_K", "Q5_K", "Q6_K", "Q8_0", "F32"].map((type) =>
      [type, counts.get(type as ShapeTensor["type"])?.length] as const
    )
    assertEquals(found, [["Q4_K", 260], ["Q5_K", 92], ["Q6_K", 70], ["Q8_0", 141], ["F32", 281]])
  })

  it("falls back where blocks do not divide rows", () => {
    const lite = shape("deepseek-v2-lite:q4_k_m").tensorsByName
    assert.strictEqual(lite.get("blk.5.attn_k_b.weight")!.type, "Q5_0")
    assertEquals(
      [2, 4].map((block) => lite.get(`blk.${block}.ffn_down_exps.weight`)!.type),
      ["Q8_0", "Q5_0"]
    )
  })

  it.each(Family.shapeNames(families))("%s is a model that can be loaded", (name) => {
    const found = shape(name)
    const config = Result.getOrThrow(Config.fromMetadata(found))
    const weights = Result.getOrThrow(Weights.find(config, found))
    const architecture = Shapes.architectures.get(name.split(":")[0]!)!
    const all = new Set(weights.all)
    if (architecture.predicts === true) {
      const block = Result.getOrThrow(Weights.findPrediction(config, weights, found))
      for (const ref of block.all) all.add(ref)
    }
    assert.strictEqual(all.size, found.tensors.length)
    assert.strictEqual(config.contextLength, architecture.contextLength)
    assert.strictEqual(config.experts?.gating, architecture.experts?.gating)
  })

  it("takes another number of blocks", () => {
    const config = Result.getOrThrow(Config.fromMetadata(shape("glm-4.7-flash:q4_0", 2)))
    assert.strictEqual(config.layers, 2)
  })

  it.each(["glm:q4_0", "glm-4.7-flash", "glm-4.7-flash:q9", "tiny-glm:q4_0:x", "tiny-glm:constructor", ""])(
    "refuses %j and lists what there is",
    (name) => {
      const error = Result.getOrThrow(Result.flip(Family.shapeOf(families, name)))
      assert.strictEqual(error._tag, "UnknownShape")
      assert.include(error.message, JSON.stringify(name))
      assert.include(error.message, "deepseek-v2-lite:q4_k_m")
    }
  )
})
