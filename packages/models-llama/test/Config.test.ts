import { assert, describe, it } from "@effect/vitest"
import * as Metadata from "@tg/gguf/Metadata"
import * as Family from "@tg/model-parts/Family"
import * as Rotary from "@tg/model-parts/Rotary"
import { Result } from "effect"
import * as Config from "../src/Config.ts"
import { llama } from "../src/Family.ts"
import { cosSin } from "../src/Model.ts"

const families: Family.Registry = { families: [llama] }
const shape = (name: string) => Result.getOrThrow(Family.shapeOf(families, `${name}:q4_0`)).shape

/** A known model with other metadata; a key with `undefined` is taken out. */
const changed = (name: string, changes: Readonly<Record<string, Metadata.MetadataValue | undefined>>) => {
  const found = shape(name)
  const metadata = new Map(found.metadata)
  for (const [key, value] of Object.entries(changes)) {
    if (value === undefined) metadata.delete(key)
    else metadata.set(key, value)
  }
  return { ...found, metadata }
}
const read = (...args: Parameters<typeof changed>): Config.Config =>
  Result.getOrThrow(Config.fromMetadata(changed(...args)))
const refused = (...args: Parameters<typeof changed>) =>
  Result.getOrThrow(Result.flip(Config.fromMetadata(changed(...args))))

const { float32, int32s, string, uint32 } = Metadata

describe("defaults", () => {
  it("of heads come from the embedding", () => {
    const config = read("tiny-llama", {
      "llama.attention.key_length": undefined,
      "llama.attention.value_length": undefined,
      "llama.attention.head_count_kv": undefined,
      "llama.rope.dimension_count": undefined
    })
    assert.deepStrictEqual([config.headSize, config.keyValueHeads, config.rotated], [64, 4, 64])
  })

  it("of experts: those of qwen3moe are normalised, those of llama as wide as dense networks", () => {
    assert.strictEqual(read("tiny-qwen3moe", {}).experts?.normalise, true)
    const mixtral = read("tiny-llama", { "llama.expert_count": uint32(8), "llama.expert_used_count": uint32(2) })
    assert.deepStrictEqual([mixtral.experts?.width, mixtral.experts?.gating], [512, "softmax"])
    const bare = read("tiny-qwen3moe", { "qwen3moe.expert_feed_forward_length": undefined })
    assert.strictEqual(bare.experts?.width, 256)
  })

  it("of gemma's windows: five of six blocks, with a base of their own and no factor", () => {
    const { window } = read("tiny-gemma3", {})
    assert.deepStrictEqual([0, 4, 5, 6, 11].map((block) => window!.isWindow(block)), [true, true, false, true, false])
    assert.deepStrictEqual([window!.rotary.base, window!.rotary.linear], [10000, 1])
    assert.strictEqual(read("tiny-gemma3", { "gemma3.attention.sliding_window": uint32(0) }).window, undefined)
  })

  it("of glm4moe's router is the sigmoid, without norm and scale", () => {
    const experts = read("tiny-glm4moe", {
      "glm4moe.expert_gating_func": undefined,
      "glm4moe.expert_weights_norm": undefined,
      "glm4moe.expert_weights_scale": undefined
    }).experts!
    assert.deepStrictEqual([experts.gating, experts.normalise, experts.scale], ["sigmoid", false, 1])
  })

  it("take one value for all blocks from an array", () => {
    const config = read("tiny-llama", { "llama.feed_forward_length": int32s(Int32Array.of(512, 512, 512)) })
    assert.strictEqual(config.feedForward, 512)
  })
})

describe("refusals name the key", () => {
  it.each<readonly [string, string, Metadata.MetadataValue]>([
    ["tiny-llama", "attention.head_count_kv", uint32(3)],
    ["tiny-llama", "rope.dimension_count", uint32(32)],
    ["tiny-llama", "attention.value_length", uint32(32)],
    ["tiny-llama", "rope.scaling.type", string("longrope")],
    ["tiny-llama", "feed_forward_length", int32s(Int32Array.of(512, 256, 512))],
    ["tiny-llama", "attention.layer_norm_rms_epsilon", float32(NaN)],
    ["tiny-qwen3moe", "expert_used_count", uint32(9)],
    ["tiny-gemma3", "attention.sliding_window_pattern", uint32(1)],
    ["tiny-glm4moe", "expert_gating_func", uint32(3)],
    ["tiny-glm4moe", "nextn_predict_layers", uint32(3)],
    ["tiny-glm4moe", "expert_weights_norm", uint32(1)]
  ])("%s with another %s", (name, key, value) => {
    const architecture = name.slice("tiny-".length)
    const error = refused(name, { [`${architecture}.${key}`]: value })
    assert.strictEqual(error._tag, "ConfigError")
    const named = key === "nextn_predict_layers" ? "block_count" : key
    assert.include(error.message, `${architecture}.${named}`)
  })

  it("qwen2's heads have to be as wide as the model", () => {
    const metadata = new Map(
      [...shape("tiny-qwen3").metadata].map(([key, value]) =>
        [key.replace("qwen3.", "qwen2."), key === "general.architecture" ? string("qwen2") : value] as const
      )
    )
    metadata.set("qwen2.attention.key_length", uint32(32))
    const error = Result.getOrThrow(Result.flip(Config.fromMetadata({ name: "f", metadata })))
    assert.include(error.message, "qwen2.attention.key_length")
  })

  it("of an architecture: what is near, and what runs", () => {
    const file = changed("tiny-qwen3", { "general.architecture": string("qwen2moe") })
    const error = Result.getOrThrow(Result.flip(Family.modelOf(families, file)))
    assert.strictEqual(error._tag, "UnknownArchitecture")
    assert.include(error.message, "\"qwen2moe\"")
    assert.include(error.message, "qwen2 and qwen3 and qwen3moe are near")
    assert.include(error.message, "glm4moe")
  })

  it("a tensor that nobody asks for", () => {
    const found = shape("tiny-qwen3")
    const stray = { ...found.tensors[0]!, name: "blk.0.attn_sinks.weight" }
    const file = { ...found, tensorsByName: new Map([...found.tensorsByName, [stray.name, stray] as const]) }
    const error = Result.getOrThrow(Result.flip(llama.modelOf(file)))
    assert.strictEqual(error._tag, "WeightError")
    assert.include(error.message, "blk.0.attn_sinks.weight")
  })
})

describe("rotations", () => {
  it("YaRN multiplies cosines and sines, the scale of the softmax stays", () => {
    const keys = {
      "qwen3.rope.scaling.type": string("yarn"),
      "qwen3.rope.scaling.factor": float32(4),
      "qwen3.rope.scaling.original_context_length": uint32(1024)
    }
    const config = read("tiny-qwen3", keys)
    assert.closeTo(config.rotary.magnitude, 1.138629, 1e-6)
    assert.strictEqual(config.attentionScale, 1 / 8)
    const [table] = cosSin(config, [0])
    assert.closeTo(table![0]!, 1.138629, 1e-6)
  })

  it("none ignores the factor, a linear one divides angles, divisors do too", () => {
    const none = read("tiny-qwen3", {
      "qwen3.rope.scaling.type": string("none"),
      "qwen3.rope.scaling.factor": float32(4)
    })
    assert.deepStrictEqual([none.rotary.linear, none.rotary.magnitude], [1, 1])
    const halved = Rotary.frequencies({ base: 100, rotated: 4, linear: 2, divisors: [1, 5] })
    assert.closeTo(halved[0]!, 0.5, 1e-12)
    assert.closeTo(halved[1]!, 0.01, 1e-12)
  })

  it("a block's own list says which have windows", () => {
    const pattern = { type: "array", element: "bool", value: [false, true, true] } as const
    const { window } = read("tiny-gemma3", { "gemma3.attention.sliding_window_pattern": pattern })
    assert.deepStrictEqual([0, 1, 2].map((block) => window!.isWindow(block)), [false, true, true])
  })
})
