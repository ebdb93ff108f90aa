/**
 * Small models of float32 with random weights, in forms that the oracle's files do not have. Their logits by llama.cpp v0.5.0
 * (CPU, float32 weights, activations and cache) are in `test/vectors/small-families`; the weights are made again from their names.
 */
import * as GgufWriter from "@tg/gguf/GgufWriter"
import * as Metadata from "@tg/gguf/Metadata"
import * as Vocabulary from "@tg/tokenizer/Synthetic"
import { Result } from "effect"

/** A model in numbers. */
export interface Small {
  readonly architecture: string
  readonly heads: readonly [queries: number, keys: number, size: number]
  readonly layers?: number
  readonly embedding?: number
  readonly vocabulary?: number
  readonly tied?: boolean
  /** What its tensors are beyond those of every model. */
  readonly has?: ReadonlyArray<"biases" | "head norms" | "norms after" | "rope_freqs" | "output.bias">
  /** Blocks before this one are dense. */
  readonly experts?: {
    readonly first: number
    readonly count: number
    readonly shared: number
    readonly biased: boolean
  }
  readonly keys?: Readonly<Record<string, Metadata.MetadataValue>>
}

const { bool, float32, string, uint32 } = Metadata

const yarn = (original: number) => ({
  "rope.scaling.type": string("yarn"),
  "rope.scaling.factor": float32(4),
  "rope.scaling.original_context_length": uint32(original)
})
const linear = { "rope.scaling.type": string("linear"), "rope.scaling.factor": float32(2.5) }

/** The models. */
export const models: Readonly<Record<string, Small>> = {
  "llama, tied, one head of keys for eight": { architecture: "llama", heads: [8, 1, 16], tied: true },
  "llama, YaRN, keys of each head": { architecture: "llama", heads: [6, 6, 16], embedding: 96, keys: yarn(32) },
  "llama, linear scaling and factors": { architecture: "llama", heads: [6, 2, 16], has: ["rope_freqs"], keys: linear },
  "llama, biases": { architecture: "llama", heads: [4, 2, 16], has: ["biases"] },
  "llama, experts": {
    architecture: "llama",
    heads: [4, 2, 24],
    experts: { first: 0, count: 5, shared: 0, biased: false },
    keys: { expert_count: uint32(5), expert_used_count: uint32(2) }
  },
  "qwen2, tied": { architecture: "qwen2", heads: [4, 2, 16], tied: true, has: ["biases"] },
  "qwen2, YaRN, a bias of the output": {
    architecture: "qwen2",
    heads: [4, 4, 16],
    has: ["biases", "output.bias"],
    keys: yarn(24)
  },
  "qwen3, YaRN": { architecture: "qwen3", heads: [5, 1, 16], has: ["head norms"], keys: yarn(32) },
  "qwen3, linear scaling, tied": {
    architecture: "qwen3",
    heads: [4, 2, 32],
    tied: true,
    has: ["head norms"],
    keys: linear
  },
  "qwen3moe": {
    architecture: "qwen3moe",
    heads: [10, 2, 16],
    has: ["head norms"],
    experts: { first: 0, count: 9, shared: 0, biased: false },
    keys: { expert_count: uint32(9), expert_used_count: uint32(3), expert_feed_forward_length: uint32(48) }
  },
  "gemma3, windows alone": {
    architecture: "gemma3",
    heads: [4, 1, 24],
    layers: 4,
    tied: true,
    has: ["head norms", "norms after"],
    keys: { "attention.sliding_window": uint32(20) }
  },
  "glm4moe, three dense blocks, two shared experts": {
    architecture: "glm4moe",
    heads: [6, 3, 20],
    layers: 5,
    has: ["biases", "head norms"],
    experts: { first: 3, count: 9, shared: 2, biased: true },
    keys: {
      "rope.dimension_count": uint32(8),
      expert_count: uint32(9),
      expert_used_count: uint32(3),
      expert_shared_count: uint32(2),
      expert_feed_forward_length: uint32(40),
      expert_gating_func: uint32(2),
      expert_weights_norm: bool(true),
      expert_weights_scale: float32(1.5),
      leading_dense_block_count: uint32(3)
    }
  }
}

/** Values that are the same everywhere, from -1 to 1. */
const values = (name: string, count: number): Float32Array => {
  let state = [...name].reduce((sum, c) => (Math.imul(sum, 31) + c.charCodeAt(0)) >>> 0, 7)
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return ((state >>> 8) - 2 ** 23) / 2 ** 23
  })
}

const tensor = (name: string, dims: ReadonlyArray<number>): GgufWriter.TensorData => {
  const count = dims.reduce((n, d) => n * d, 1)
  const random = values(name, count)
  const spread = name.endsWith("bias") ? 0.3 : 1.7 / Math.sqrt(dims[0]!)
  const data = /norm\.weight$|rope_freqs/.test(name)
    ? random.map((x) => 1 + 0.3 * x)
    : random.map((x) => spread * x)
  return { name, type: "F32", dims, data: new Uint8Array(data.buffer) }
}

const inner = 112

const feedForward = (
  model: Small,
  embedding: number,
  block: number
): ReadonlyArray<readonly [string, Array<number>]> => {
  const { architecture, experts: e } = model
  if (e === undefined || block < e.first) {
    return [["ffn_gate.weight", [embedding, inner]], ["ffn_up.weight", [embedding, inner]], ["ffn_down.weight", [
      inner,
      embedding
    ]]]
  }
  const width = architecture === "llama" ? inner : architecture === "qwen3moe" ? 48 : 40
  const shared = e.shared * width
  return [
    ["ffn_gate_inp.weight", [embedding, e.count]],
    ["ffn_gate_exps.weight", [embedding, width, e.count]],
    ["ffn_up_exps.weight", [embedding, width, e.count]],
    ["ffn_down_exps.weight", [width, embedding, e.count]],
    ...(e.biased ? [["exp_probs_b.bias", [e.count]] as [string, Array<number>]] : []),
    ...(shared === 0 ? [] : [
      ["ffn_gate_shexp.weight", [embedding, shared]],
      ["ffn_up_shexp.weight", [embedding, shared]],
      ["ffn_down_shexp.weight", [shared, embedding]]
    ] as Array<[string, Array<number>]>)
  ]
}

const blockOf = (model: Small, embedding: number, block: number): ReadonlyArray<GgufWriter.TensorData> => {
  const { architecture, has = [], heads: [queries, keys, size] } = model
  const before = architecture === "glm4moe" ? "post_attention_norm.weight" : "ffn_norm.weight"
  const parts: ReadonlyArray<readonly [string, ReadonlyArray<number>]> = [
    ["attn_norm.weight", [embedding]],
    ["attn_q.weight", [embedding, queries * size]],
    ["attn_k.weight", [embedding, keys * size]],
    ["attn_v.weight", [embedding, keys * size]],
    ["attn_output.weight", [queries * size, embedding]],
    ...(has.includes("biases")
      ? [["attn_q.bias", [queries * size]], ["attn_k.bias", [keys * size]], ["attn_v.bias", [keys * size]]] as const
      : []),
    ...(has.includes("head norms") ? [["attn_q_norm.weight", [size]], ["attn_k_norm.weight", [size]]] as const : []),
    ...(has.includes("norms after")
      ? [["post_attention_norm.weight", [embedding]], ["post_ffw_norm.weight", [embedding]]] as const
      : []),
    [before, [embedding]],
    ...feedForward(model, embedding, block)
  ]
  return parts.map(([name, dims]) => tensor(`blk.${block}.${name}`, dims))
}

/** The file of a model. */
export const file = (model: Small): Uint8Array => {
  const { architecture, has = [], heads: [queries, keys, size], layers = 2 } = model
  const { embedding = 64, tied = false, vocabulary: count = 333 } = model
  const made = Vocabulary.make({ family: "qwen2", size: count, specialsAt: 300 })
  const own = {
    block_count: uint32(layers),
    context_length: uint32(512),
    embedding_length: uint32(embedding),
    feed_forward_length: uint32(inner),
    "attention.head_count": uint32(queries),
    "attention.head_count_kv": uint32(keys),
    ...(architecture === "qwen2"
      ? {}
      : { "attention.key_length": uint32(size), "attention.value_length": uint32(size) }),
    "attention.layer_norm_rms_epsilon": float32(1e-5),
    "rope.freq_base": float32(10000),
    ...(architecture === "llama" ? { "rope.dimension_count": uint32(size) } : {}),
    ...model.keys
  }
  return Result.getOrThrow(GgufWriter.write({
    metadata: [
      ["general.architecture", string(architecture)],
      ["general.name", string("small")],
      ...Object.entries(own).map(([key, value]) => [`${architecture}.${key}`, value] as const),
      ["tokenizer.ggml.model", string("gpt2")],
      ["tokenizer.ggml.pre", string("qwen2")],
      ["tokenizer.ggml.tokens", Metadata.strings(made.tokens)],
      ["tokenizer.ggml.token_type", Metadata.int32s(made.types)],
      ["tokenizer.ggml.merges", Metadata.strings(made.merges)],
      ["tokenizer.ggml.eos_token_id", uint32(made.ids.get("eos")!)]
    ],
    tensors: [
      tensor("token_embd.weight", [embedding, count]),
      tensor("output_norm.weight", [embedding]),
      ...(tied ? [] : [tensor("output.weight", [embedding, count])]),
      ...(has.includes("output.bias") ? [tensor("output.bias", [count])] : []),
      ...(has.includes("rope_freqs") ? [tensor("rope_freqs.weight", [size / 2])] : []),
      ...Array.from({ length: layers }, (_, block) => blockOf(model, embedding, block)).flat()
    ]
  }))
}

/** What every model is given: more tokens than a window and than YaRN's first context. */
export const tokens: ReadonlyArray<number> = Array.from({ length: 56 }, (_, i) => (i * i * 37 + 11 * i + 5) % 300)
/** Positions whose logits are kept. */
export const rows: ReadonlyArray<number> = [0, 1, 7, 30, 54, 55]
