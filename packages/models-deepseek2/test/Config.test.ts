import type { ConfigError } from "@tg/model-parts/Keys"
import * as Config from "@tg/models-deepseek2/Config"
import { attentionScale, frequencies, rope } from "@tg/models-deepseek2/Rope"
import * as Metadata from "@tg/gguf/Metadata"
import { Result } from "effect"
import { describe, expect, it } from "vitest"

type Values = Readonly<Record<string, Metadata.MetadataValue | undefined>>

const int = Metadata.uint32

/** DeepSeek-V2-Lite as new conversions describe it. */
const lite: Values = {
  block_count: int(27),
  context_length: int(163840),
  embedding_length: int(2048),
  feed_forward_length: int(10944),
  "attention.head_count": int(16),
  "attention.head_count_kv": int(1),
  "attention.layer_norm_rms_epsilon": Metadata.float32(1e-6),
  "attention.kv_lora_rank": int(512),
  "attention.key_length": int(576),
  "attention.value_length": int(512),
  "attention.key_length_mla": int(192),
  "attention.value_length_mla": int(128),
  "rope.dimension_count": int(64),
  "rope.freq_base": Metadata.float32(10000),
  "rope.scaling.type": Metadata.string("yarn"),
  "rope.scaling.factor": Metadata.float32(40),
  "rope.scaling.original_context_length": int(4096),
  "rope.scaling.yarn_log_multiplier": Metadata.float32(0.0707),
  leading_dense_block_count: int(1),
  expert_count: int(64),
  expert_used_count: int(6),
  expert_shared_count: int(2),
  expert_feed_forward_length: int(1408),
  expert_weights_scale: Metadata.float32(1),
  vocab_size: int(102400)
}

const file = (changes: Values, more: Values = {}): Metadata.HasMetadata => {
  const keyed = Object.entries({ ...lite, ...changes }).map(([key, value]) => [`deepseek2.${key}`, value] as const)
  const all = [["general.architecture", Metadata.string("deepseek2")] as const, ...keyed, ...Object.entries(more)]
  return {
    name: "model.gguf",
    metadata: new Map(all.filter((e): e is [string, Metadata.MetadataValue] => e[1] !== undefined))
  }
}
const read = (changes: Values = {}, more: Values = {}): Config.Config =>
  Result.getOrThrow(Config.fromMetadata(file(changes, more)))
const error = (changes: Values, more: Values = {}): ConfigError =>
  Result.getOrThrow(Result.flip(Config.fromMetadata(file(changes, more))))

describe("configuration", () => {
  it("of a recent conversion", () => {
    const config = read()
    expect(config).toMatchObject({
      layers: 27,
      heads: 16,
      queryRank: 0,
      latent: 512,
      rotated: 64,
      plain: 128,
      value: 128
    })
    expect(config.experts).toMatchObject({
      firstBlock: 1,
      count: 64,
      used: 6,
      shared: 2,
      gating: "softmax",
      normalise: false,
      scale: 1,
      groups: 1
    })
    expect(Config.headSize(config)).toBe(192)
    expect(Config.cacheRow(config)).toBe(576)
  })

  it("of an old conversion takes the head sizes from other keys", () => {
    const config = read({
      "attention.key_length_mla": undefined,
      "attention.value_length_mla": undefined,
      "attention.key_length": int(192),
      "attention.value_length": int(128)
    })
    expect(config).toMatchObject({ plain: 128, rotated: 64, value: 128 })
  })

  it("leaves out multi-token prediction blocks", () => {
    expect(read({ block_count: int(48), nextn_predict_layers: int(1) }).layers).toBe(47)
  })

  it("has no experts without a count, or when all blocks are dense", () => {
    expect(read({ expert_count: undefined }).experts).toBeUndefined()
    expect(read({ expert_count: int(0) }).experts).toBeUndefined()
    expect(read({ leading_dense_block_count: int(27) }).experts).toBeUndefined()
  })

  it("chooses the gating as the reference loader does", () => {
    const gating = (changes: Values) => read(changes).experts!.gating
    expect(gating({ expert_gating_func: int(2) })).toBe("sigmoid")
    expect(gating({ expert_gating_func: int(1) })).toBe("softmax")
    expect(gating({ block_count: int(47), vocab_size: int(154880) })).toBe("sigmoid")
    expect(gating({ block_count: int(48), nextn_predict_layers: int(1), vocab_size: int(154880) })).toBe("sigmoid")
    expect(gating({ block_count: int(47) })).toBe("softmax")
    expect(gating({ block_count: int(47), vocab_size: int(154880), expert_gating_func: int(1) })).toBe("softmax")
  })

  it("counts the tokens when the vocabulary size is absent", () => {
    const tokens = { "tokenizer.ggml.tokens": Metadata.strings(["a", "b", "c"]) }
    expect(read({ vocab_size: undefined }, tokens).vocabulary).toBe(3)
  })

  it("does not scale by zero", () => {
    expect(read({ expert_weights_scale: Metadata.float32(0) }).experts!.scale).toBe(1)
    expect(read({ expert_weights_scale: undefined }).experts!.scale).toBe(1)
  })

  it("says which key is at fault", () => {
    expect(error({ embedding_length: undefined })).toMatchObject({
      key: "deepseek2.embedding_length",
      file: "model.gguf"
    })
    expect(error({ "attention.head_count": Metadata.string("16") }).message).toMatch(/head_count.*string/)
    expect(error({}, { "general.architecture": Metadata.string("llama") }).message).toMatch(/llama.*deepseek2/)
    expect(error({ expert_gating_func: int(3) }).key).toBe("deepseek2.expert_gating_func")
    expect(error({ expert_used_count: int(65) }).message).toMatch(/1 to 64/)
    expect(error({ "rope.scaling.type": Metadata.string("longrope") }).message).toMatch(/none or yarn/)
    expect(error({ "rope.dimension_count": int(192) }).message).toMatch(/head size 192/)
    expect(error({ nextn_predict_layers: int(27) }).key).toBe("deepseek2.block_count")
    expect(error({ expert_group_count: int(7) }).key).toBe("deepseek2.expert_group_count")
    expect(error({ vocab_size: undefined }).key).toBe("tokenizer.ggml.tokens")
  })
})

describe("numbers that no model has", () => {
  const float = Metadata.float32
  const epsilon = "attention.layer_norm_rms_epsilon"
  const cases: ReadonlyArray<readonly [key: string, values: ReadonlyArray<Metadata.MetadataValue>]> = [
    ["context_length", [int(0)]],
    ["embedding_length", [int(0)]],
    ["attention.head_count", [int(0)]],
    ["attention.kv_lora_rank", [int(0)]],
    ["rope.dimension_count", [int(0), int(63)]],
    [epsilon, [float(NaN), float(0), float(-1e-6), float(Infinity), float(2)]],
    ["rope.freq_base", [float(NaN), float(0), float(1), float(-10000), float(Infinity)]],
    ["rope.scaling.factor", [float(NaN), float(0), float(-40), float(Infinity)]],
    ["rope.scaling.original_context_length", [int(0)]],
    ["rope.scaling.yarn_beta_fast", [float(NaN), float(31)]],
    ["rope.scaling.yarn_beta_slow", [float(NaN), float(2)]],
    ["rope.scaling.yarn_log_multiplier", [float(NaN), float(-1), float(Infinity)]],
    ["rope.scaling.attn_factor", [float(NaN), float(0), float(-Infinity)]],
    ["expert_weights_scale", [float(NaN), float(-1), float(Infinity)]]
  ]
  it.each(cases)("%s", (key, values) => {
    for (const value of values) {
      const wrong = error({ [key]: value })
      expect(wrong.key).toBe(`deepseek2.${key}`)
      expect(wrong.message).toContain(`${key} is ${value.value}`)
    }
  })

  it("and texts of megabytes do not fill the error, nor the name", () => {
    const long = Metadata.string("x".repeat(5_000_000))
    expect(error({}, { "general.architecture": long }).message.length).toBeLessThan(300)
    expect(error({ "rope.scaling.type": long }).message.length).toBeLessThan(300)
    expect(read({}, { "general.name": long }).name.length).toBeLessThan(300)
  })
})

describe("rotation", () => {
  it("slows the slow pairs of YaRN, with a ramp between pairs 10 and 23", () => {
    const config = read()
    const own = frequencies(config)
    const plain = frequencies(read({ "rope.scaling.type": undefined }))
    expect(own.slice(0, 11)).toEqual(plain.slice(0, 11))
    for (let j = 23; j < 32; j++) expect(own[j]! * 40 / plain[j]!).toBeCloseTo(1, 12)
    const keep = 1 - (16 - 10) / 13
    expect(own[16]! / plain[16]!).toBeCloseTo(keep + (1 - keep) / 40, 12)
  })

  it("scales products by m^2 / sqrt(head size)", () => {
    expect(attentionScale(read())).toBeCloseTo(0.114721, 6)
    expect(attentionScale(read({ "rope.scaling.type": undefined }))).toBeCloseTo(1 / Math.sqrt(192), 12)
    expect(attentionScale(read({ "rope.scaling.factor": Metadata.float32(1) }))).toBeCloseTo(1 / Math.sqrt(192), 12)
  })

  it("grows the rotated values only without a multiplier", () => {
    expect(rope(read(), [0])[0]).toBe(1)
    const m = 1 + 0.1 * Math.log(40)
    const without = read({ "rope.scaling.yarn_log_multiplier": undefined })
    expect(rope(without, [0])[0]).toBeCloseTo(m, 6)
    expect(attentionScale(without)).toBeCloseTo(m * m / Math.sqrt(192), 12)
  })

  it("keeps angles exact far out", () => {
    const config = read({ "rope.scaling.type": undefined })
    const position = 160_001
    const [cos, sin] = rope(config, [position])
    expect(cos).toBe(Math.fround(Math.cos(position)))
    expect(sin).toBe(Math.fround(Math.sin(position)))
  })
})
