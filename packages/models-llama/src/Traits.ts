/** What the architectures of this family differ in, beyond what their files say. */
import type { Gate } from "@tg/model-parts/FeedForward"
import type { Pairs } from "@tg/model-parts/Rotary"

/** The values of `general.architecture` that run. */
export type Architecture = "llama" | "qwen2" | "qwen3" | "qwen3moe" | "gemma3" | "glm4moe"

/** What follows from the architecture alone. */
export interface Traits {
  readonly pairs: Pairs
  /** Whether a part of each head only may be rotated. */
  readonly rotation: "whole" | "part"
  /** Whether the width of all heads is that of the model. */
  readonly heads: "embedding" | "any"
  /** Norms of each head's query and key. */
  readonly headNorms: "none" | "all" | "optional"
  /** The norm in front of the feed-forward network. */
  readonly feedForwardNorm: "ffn_norm" | "post_attention_norm"
  /** Norms of what attention and the feed-forward network add. */
  readonly normsAfter: boolean
  readonly gate: Gate
  /** What embeddings are multiplied with: nothing, or the root of their length. */
  readonly embeddingScale: "one" | "root"
  readonly experts: "none" | "optional" | "all" | "keys"
  /** Whether blocks may see a window of positions. */
  readonly windows: boolean
  /** Matrices that may have a bias. */
  readonly biases: ReadonlyArray<string>
  /** Tensors outside of blocks that the file may have. */
  readonly others: ReadonlyArray<"rope_freqs.weight" | "output.bias">
}

const ofAttention = ["attn_q", "attn_k", "attn_v", "attn_qkv"]

const usual: Traits = {
  pairs: "halves",
  rotation: "whole",
  heads: "any",
  headNorms: "none",
  feedForwardNorm: "ffn_norm",
  normsAfter: false,
  gate: "silu",
  embeddingScale: "one",
  experts: "none",
  windows: false,
  biases: ofAttention,
  others: []
}

/** The traits of each architecture. */
export const traits: { readonly [A in Architecture]: Traits } = {
  llama: {
    ...usual,
    pairs: "neighbours",
    experts: "optional",
    biases: [...ofAttention, "attn_output", "ffn_gate", "ffn_up", "ffn_down"],
    others: ["rope_freqs.weight"]
  },
  qwen2: { ...usual, heads: "embedding", others: ["output.bias"] },
  qwen3: { ...usual, headNorms: "all" },
  qwen3moe: { ...usual, headNorms: "all", experts: "all" },
  gemma3: {
    ...usual,
    headNorms: "all",
    normsAfter: true,
    gate: "gelu",
    embeddingScale: "root",
    windows: true
  },
  glm4moe: {
    ...usual,
    rotation: "part",
    headNorms: "optional",
    feedForwardNorm: "post_attention_norm",
    experts: "keys"
  }
}

/** All architectures. */
export const architectures = Object.keys(traits) as ReadonlyArray<Architecture>

/** Whether a text names one of them. */
export const isArchitecture = (text: string): text is Architecture => Object.hasOwn(traits, text)
