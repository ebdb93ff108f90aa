/** Known models of these architectures as data: the metadata and the tensor table of their files, without weights. */
import * as Metadata from "@tg/gguf/Metadata"
import type * as Mixes from "@tg/model-parts/Mixes"
import * as Shape from "@tg/model-parts/Shape"
import { type Architecture, traits } from "./Traits.ts"

/** The numbers of a known model, under the names of `Config` where it has them. */
export interface KnownModel {
  readonly name: string
  readonly architecture: Architecture
  readonly layers: number
  readonly embedding: number
  readonly feedForward: number
  readonly heads: number
  readonly keyValueHeads: number
  readonly headSize: number
  readonly rotated: number
  readonly vocabulary: number
  readonly contextLength: number
  readonly epsilon: number
  readonly ropeBase: number
  /** Angles are divided by it. */
  readonly linear?: number
  /** How Llama 3 stretches the slow rotations, which its files have as `rope_freqs`. */
  readonly stretched?: { readonly factor: number; readonly originalContext: number }
  readonly window?: number
  /** Query, key and value have biases. */
  readonly biased?: boolean
  /** The embedding is the output matrix, too. */
  readonly tied: boolean
  readonly experts?: Experts
  /** A family of `@tg/tokenizer/Synthetic`. */
  readonly tokenizer: "llama-bpe" | "qwen2" | "glm4" | "mistral" | "gemma"
  /** Id of the first special token. */
  readonly specialsAt: number
}

/** The mixture of experts of a known model. */
export interface Experts {
  readonly firstBlock: number
  readonly count: number
  readonly used: number
  readonly shared: number
  readonly width: number
  readonly gating: "softmax" | "sigmoid"
}

const llama31: KnownModel = {
  name: "llama-3.1-8b",
  architecture: "llama",
  layers: 32,
  embedding: 4096,
  feedForward: 14336,
  heads: 32,
  keyValueHeads: 8,
  headSize: 128,
  rotated: 128,
  vocabulary: 128256,
  contextLength: 131072,
  epsilon: 1e-5,
  ropeBase: 5e5,
  stretched: { factor: 8, originalContext: 8192 },
  tied: false,
  tokenizer: "llama-bpe",
  specialsAt: 128000
}

const llama32: KnownModel = {
  ...llama31,
  name: "llama-3.2-1b",
  layers: 16,
  embedding: 2048,
  feedForward: 8192,
  headSize: 64,
  rotated: 64,
  stretched: { factor: 32, originalContext: 8192 },
  tied: true
}

const { stretched: _, ...unstretched } = llama31
const mistral: KnownModel = {
  ...unstretched,
  name: "mistral-7b",
  vocabulary: 32768,
  contextLength: 32768,
  ropeBase: 1e6,
  tokenizer: "mistral",
  specialsAt: 0
}

const qwen3: KnownModel = {
  name: "qwen3-8b",
  architecture: "qwen3",
  layers: 36,
  embedding: 4096,
  feedForward: 12288,
  heads: 32,
  keyValueHeads: 8,
  headSize: 128,
  rotated: 128,
  vocabulary: 151936,
  contextLength: 40960,
  epsilon: 1e-6,
  ropeBase: 1e6,
  tied: false,
  tokenizer: "qwen2",
  specialsAt: 151643
}

const qwen3moe: KnownModel = {
  ...qwen3,
  name: "qwen3-30b-a3b",
  architecture: "qwen3moe",
  layers: 48,
  embedding: 2048,
  feedForward: 6144,
  keyValueHeads: 4,
  experts: { firstBlock: 0, count: 128, used: 8, shared: 0, width: 768, gating: "softmax" }
}

const gemma3: KnownModel = {
  name: "gemma-3-4b",
  architecture: "gemma3",
  layers: 34,
  embedding: 2560,
  feedForward: 10240,
  heads: 8,
  keyValueHeads: 4,
  headSize: 256,
  rotated: 256,
  vocabulary: 262144,
  contextLength: 131072,
  epsilon: 1e-6,
  ropeBase: 1e6,
  linear: 8,
  window: 1024,
  tied: true,
  tokenizer: "gemma",
  specialsAt: 0
}

const glm4moe: KnownModel = {
  name: "glm-4.5-air",
  architecture: "glm4moe",
  layers: 46,
  embedding: 4096,
  feedForward: 10944,
  heads: 96,
  keyValueHeads: 8,
  headSize: 128,
  rotated: 64,
  vocabulary: 151552,
  contextLength: 131072,
  epsilon: 1e-5,
  ropeBase: 1e6,
  biased: true,
  tied: false,
  experts: { firstBlock: 1, count: 128, used: 8, shared: 1, width: 1408, gating: "sigmoid" },
  tokenizer: "glm4",
  specialsAt: 151329
}

/** The same structure, small enough for any device. Rows are multiples of 256, which every type takes. */
const tiny = (full: KnownModel, name: string): KnownModel => ({
  ...full,
  name,
  layers: full.window === undefined ? 3 : 7,
  embedding: 256,
  feedForward: 512,
  heads: 4,
  keyValueHeads: 2,
  headSize: 64,
  rotated: full.rotated === full.headSize ? 64 : 32,
  vocabulary: 512,
  contextLength: 4096,
  ...(full.window === undefined ? {} : { window: 48 }),
  ...(full.experts === undefined ? {} : {
    experts: { ...full.experts, count: 8, used: full.experts.shared + 2, width: 256 }
  }),
  specialsAt: full.specialsAt === 0 ? 0 : 448
})

/** Every known model, by name. */
export const models: ReadonlyMap<string, KnownModel> = new Map(
  [
    llama31,
    llama32,
    mistral,
    qwen3,
    qwen3moe,
    gemma3,
    glm4moe,
    tiny(llama31, "tiny-llama"),
    tiny(qwen3, "tiny-qwen3"),
    tiny(qwen3moe, "tiny-qwen3moe"),
    tiny(gemma3, "tiny-gemma3"),
    tiny(glm4moe, "tiny-glm4moe")
  ].map((model) => [model.name, model])
)

/** The shape of a model with the types of a mix. */
export const make = (model: KnownModel, mix: Mixes.Name): Shape.Shape => {
  const { architecture, experts, layers, name, specialsAt, tied, tokenizer, vocabulary } = model
  return Shape.make({
    name,
    architecture,
    layers,
    tied,
    experts,
    vocabulary: { size: vocabulary, specialsAt, family: tokenizer },
    entries: entriesOf(model),
    keys: keysOf(model)
  }, mix)
}

const { attentionGain, downGain, float, matrix, norm } = Shape
type Entry = Shape.Entry

const entriesOf = (m: KnownModel): ReadonlyArray<Entry> => [
  ...Shape.ends(m),
  ...(m.stretched === undefined ? [] : [stretching(m, m.stretched)]),
  ...Array.from({ length: m.layers }, (_, block) => [
    ...attentionOf(m, `blk.${block}`),
    ...feedForwardOf(m, block)
  ]).flat()
]

/** Llama 3's divisors: none for fast rotations, the factor for slow ones, between them something between. */
const stretching = (
  { ropeBase, rotated }: KnownModel,
  { factor, originalContext }: { readonly factor: number; readonly originalContext: number }
): Entry => {
  const values = Float32Array.from({ length: rotated / 2 }, (_, j) => {
    const turns = originalContext / (2 * Math.PI * ropeBase ** (2 * j / rotated))
    if (turns > 4) return 1
    if (turns < 1) return factor
    const share = (turns - 1) / 3
    return 1 / ((1 - share) / factor + share)
  })
  return { ...float("rope_freqs.weight", [values.length], { mean: 1, deviation: 0 }), values }
}

const attentionOf = (m: KnownModel, block: string): ReadonlyArray<Entry> => {
  const { headNorms, normsAfter } = traits[m.architecture]
  const [query, key] = [m.heads * m.headSize, m.keyValueHeads * m.headSize]
  const projections = ([["attn_q", query], ["attn_k", key], ["attn_v", key]] as const).flatMap(([role, rows]) => [
    matrix(`${block}.${role}.weight`, [m.embedding, rows]),
    ...(m.biased === true ? [float(`${block}.${role}.bias`, [rows], { mean: 0, deviation: 0.3 })] : [])
  ])
  return [
    norm(`${block}.attn_norm.weight`, m.embedding),
    ...projections,
    ...(headNorms === "all"
      ? [norm(`${block}.attn_q_norm.weight`, m.headSize), norm(`${block}.attn_k_norm.weight`, m.headSize)]
      : []),
    matrix(`${block}.attn_output.weight`, [query, m.embedding], attentionGain),
    ...(normsAfter ? [norm(`${block}.post_attention_norm.weight`, m.embedding)] : [])
  ]
}

const feedForwardOf = (m: KnownModel, index: number): ReadonlyArray<Entry> => {
  const block = `blk.${index}`
  const { experts: e } = m
  const { feedForwardNorm, normsAfter } = traits[m.architecture]
  const before = norm(`${block}.${feedForwardNorm}.weight`, m.embedding)
  const after = normsAfter ? [norm(`${block}.post_ffw_norm.weight`, m.embedding)] : []
  if (e === undefined || index < e.firstBlock) {
    return [
      before,
      matrix(`${block}.ffn_gate.weight`, [m.embedding, m.feedForward]),
      matrix(`${block}.ffn_up.weight`, [m.embedding, m.feedForward]),
      matrix(`${block}.ffn_down.weight`, [m.feedForward, m.embedding], downGain),
      ...after
    ]
  }
  const shared = e.width * e.shared
  return [
    before,
    float(`${block}.ffn_gate_inp.weight`, [m.embedding, e.count], { mean: 0, deviation: 1 / Math.sqrt(m.embedding) }),
    ...(e.gating === "sigmoid" ? [float(`${block}.exp_probs_b.bias`, [e.count], { mean: 0, deviation: 0.15 })] : []),
    matrix(`${block}.ffn_gate_exps.weight`, [m.embedding, e.width, e.count]),
    matrix(`${block}.ffn_up_exps.weight`, [m.embedding, e.width, e.count]),
    matrix(`${block}.ffn_down_exps.weight`, [e.width, m.embedding, e.count], downGain),
    ...(shared === 0 ? [] : [
      matrix(`${block}.ffn_gate_shexp.weight`, [m.embedding, shared]),
      matrix(`${block}.ffn_up_shexp.weight`, [m.embedding, shared]),
      matrix(`${block}.ffn_down_shexp.weight`, [shared, m.embedding], downGain)
    ]),
    ...after
  ]
}

type Pair = Shape.Pair

const keysOf = (m: KnownModel): ReadonlyArray<Pair> => {
  const { float32, string, uint32 } = Metadata
  const isPart = traits[m.architecture].rotation === "part"
  return [
    ["block_count", uint32(m.layers)],
    ["context_length", uint32(m.contextLength)],
    ["embedding_length", uint32(m.embedding)],
    ["feed_forward_length", uint32(m.feedForward)],
    ["attention.head_count", uint32(m.heads)],
    ["attention.head_count_kv", uint32(m.keyValueHeads)],
    ["attention.key_length", uint32(m.headSize)],
    ["attention.value_length", uint32(m.headSize)],
    ["attention.layer_norm_rms_epsilon", float32(m.epsilon)],
    ["rope.freq_base", float32(m.ropeBase)],
    ...(isPart || m.architecture === "llama" ? [["rope.dimension_count", uint32(m.rotated)] as const] : []),
    ["vocab_size", uint32(m.vocabulary)],
    ...(m.linear === undefined ? [] : [
      ["rope.scaling.type", string("linear")] as const,
      ["rope.scaling.factor", float32(m.linear)] as const
    ]),
    ...(m.window === undefined ? [] : [["attention.sliding_window", uint32(m.window)] as const]),
    ...expertKeys(m)
  ]
}

const expertKeys = ({ experts: e }: KnownModel): ReadonlyArray<Pair> => {
  const { bool, float32, uint32 } = Metadata
  if (e === undefined) return []
  const own: ReadonlyArray<Pair> = [
    ["expert_count", uint32(e.count)],
    ["expert_used_count", uint32(e.used)],
    ["expert_feed_forward_length", uint32(e.width)]
  ]
  return e.gating === "softmax" ? own : [
    ...own,
    ["leading_dense_block_count", uint32(e.firstBlock)],
    ["expert_shared_count", uint32(e.shared)],
    ["expert_gating_func", uint32(2)],
    ["expert_weights_norm", bool(true)],
    ["expert_weights_scale", float32(1)]
  ]
}
