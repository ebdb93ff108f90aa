/** Known models of this architecture as data: the metadata and the tensor table of their files, without weights. */
import * as Metadata from "@tg/gguf/Metadata"
import type * as Mixes from "@tg/model-parts/Mixes"
import * as Shape from "@tg/model-parts/Shape"

/** The tokenizer families of these models. */
export type TokenizerFamily = "glm4" | "deepseek-llm" | "youtu"

/** The numbers of a model, under the names of `Config` where it has them. */
export interface Architecture {
  readonly name: string
  readonly layers: number
  readonly embedding: number
  readonly feedForward: number
  readonly heads: number
  /** 0: a full query matrix. */
  readonly queryRank: number
  readonly latent: number
  readonly plain: number
  readonly rotated: number
  readonly value: number
  readonly vocabulary: number
  readonly contextLength: number
  readonly epsilon: number
  readonly ropeBase: number
  readonly yarn: { readonly factor: number; readonly originalContext: number; readonly multiplier: number } | undefined
  /** The embedding is the output matrix, too. */
  readonly tied: boolean
  readonly experts: Experts | undefined
  /** Whether a prediction block stands behind the others; it does not, if it is not said. */
  readonly predicts?: boolean | undefined
  readonly tokenizer: TokenizerFamily
  /** Id of the first special token; behind them the vocabulary is padded. */
  readonly specialsAt: number
}

/** The mixture of experts of an architecture. */
export interface Experts {
  /** Blocks before this one are dense. */
  readonly firstBlock: number
  readonly count: number
  readonly used: number
  readonly shared: number
  readonly width: number
  readonly gating: "softmax" | "sigmoid"
  readonly normalise: boolean
  readonly scale: number
  /** Whether `exp_probs_b` takes part in the choice. */
  readonly bias: boolean
}

const glm: Architecture = {
  name: "glm-4.7-flash",
  layers: 47,
  embedding: 2048,
  feedForward: 10240,
  heads: 20,
  queryRank: 768,
  latent: 512,
  plain: 192,
  rotated: 64,
  value: 256,
  vocabulary: 154880,
  contextLength: 202752,
  epsilon: 1e-5,
  ropeBase: 1e6,
  yarn: undefined,
  tied: false,
  experts: {
    firstBlock: 1,
    count: 64,
    used: 4,
    shared: 1,
    width: 1536,
    gating: "sigmoid",
    normalise: true,
    scale: 1.8,
    bias: true
  },
  tokenizer: "glm4",
  specialsAt: 154820
}

const lite: Architecture = {
  name: "deepseek-v2-lite",
  layers: 27,
  embedding: 2048,
  feedForward: 10944,
  heads: 16,
  queryRank: 0,
  latent: 512,
  plain: 128,
  rotated: 64,
  value: 128,
  vocabulary: 102400,
  contextLength: 163840,
  epsilon: 1e-6,
  ropeBase: 1e4,
  yarn: { factor: 40, originalContext: 4096, multiplier: 0.0707 },
  tied: false,
  experts: {
    firstBlock: 1,
    count: 64,
    used: 6,
    shared: 2,
    width: 1408,
    gating: "softmax",
    normalise: false,
    scale: 1,
    bias: false
  },
  tokenizer: "deepseek-llm",
  specialsAt: 100000
}

const youtu: Architecture = {
  name: "youtu-llm-2b",
  layers: 32,
  embedding: 2048,
  feedForward: 6144,
  heads: 16,
  queryRank: 1536,
  latent: 512,
  plain: 128,
  rotated: 64,
  value: 128,
  vocabulary: 128256,
  contextLength: 131072,
  epsilon: 1e-6,
  ropeBase: 1.6e6,
  yarn: undefined,
  tied: true,
  experts: undefined,
  tokenizer: "youtu",
  specialsAt: 128000
}

/** The same structure, small enough for any device. Rows are multiples of 256, which every type takes, but for `plain`. */
const tiny = (full: Architecture, name: string): Architecture => ({
  ...full,
  name,
  layers: 3,
  embedding: 256,
  feedForward: 512,
  heads: 4,
  queryRank: full.queryRank === 0 ? 0 : 256,
  latent: 256,
  plain: 64,
  rotated: 32,
  value: 64,
  vocabulary: 512,
  contextLength: 4096,
  yarn: full.yarn === undefined ? undefined : { ...full.yarn, originalContext: 64 },
  experts: full.experts === undefined
    ? undefined
    : { ...full.experts, count: 8, used: full.experts.shared + 1, width: 256 },
  specialsAt: 448
})

/** As some conversions have it, with its prediction block. */
const glmPredicting: Architecture = { ...glm, name: "glm-4.7-flash-mtp", predicts: true }

/** Every known architecture, by name. */
export const architectures: ReadonlyMap<string, Architecture> = new Map(
  [
    glm,
    glmPredicting,
    lite,
    youtu,
    tiny(glm, "tiny-glm"),
    tiny(glmPredicting, "tiny-glm-mtp"),
    tiny(lite, "tiny-lite"),
    tiny(youtu, "tiny-youtu")
  ].map((a) => [a.name, a])
)

/** The shape of an architecture with the types of a mix. */
export const make = (architecture: Architecture, mix: Mixes.Name): Shape.Shape => {
  const { experts, layers, name, specialsAt, tied, tokenizer, vocabulary } = architecture
  return Shape.make({
    name,
    architecture: "deepseek2",
    layers,
    tied,
    experts,
    vocabulary: { size: vocabulary, specialsAt, family: tokenizer },
    entries: tensorsOf(architecture),
    keys: keysOf(architecture)
  }, mix)
}

const { attentionGain, downGain, float, matrix, norm } = Shape
type Entry = Shape.Entry
type Spread = Shape.Spread

const tensorsOf = (a: Architecture): ReadonlyArray<Entry> => [
  ...Shape.ends(a),
  ...Array.from({ length: a.layers }, (_, block) => [
    ...attentionOf(a, `blk.${block}`),
    ...feedForwardOf(a, block)
  ]).flat(),
  ...predictionOf(a)
]

/** The block behind the last one, with the embedding and the output matrix of the model. */
const predictionOf = (a: Architecture): ReadonlyArray<Entry> => {
  if (a.predicts !== true) return []
  const block = `blk.${a.layers}`
  return [
    ...attentionOf(a, block),
    ...feedForwardOf(a, a.layers),
    matrix(`${block}.nextn.eh_proj.weight`, [2 * a.embedding, a.embedding]),
    ...["enorm", "hnorm", "shared_head_norm"].map((role) => norm(`${block}.nextn.${role}.weight`, a.embedding))
  ]
}

const attentionOf = (a: Architecture, block: string): ReadonlyArray<Entry> => {
  const head = a.plain + a.rotated
  const query = a.queryRank === 0
    ? [matrix(`${block}.attn_q.weight`, [a.embedding, a.heads * head])]
    : [
      matrix(`${block}.attn_q_a.weight`, [a.embedding, a.queryRank]),
      norm(`${block}.attn_q_a_norm.weight`, a.queryRank),
      matrix(`${block}.attn_q_b.weight`, [a.queryRank, a.heads * head])
    ]
  return [
    norm(`${block}.attn_norm.weight`, a.embedding),
    ...query,
    matrix(`${block}.attn_kv_a_mqa.weight`, [a.embedding, a.latent + a.rotated]),
    norm(`${block}.attn_kv_a_norm.weight`, a.latent),
    // stored transposed: its product with a query sums over `plain`, and stands for one that sums over `latent`
    matrix(`${block}.attn_k_b.weight`, [a.plain, a.latent, a.heads], Math.sqrt(a.plain / a.latent)),
    matrix(`${block}.attn_v_b.weight`, [a.latent, a.value, a.heads]),
    matrix(`${block}.attn_output.weight`, [a.heads * a.value, a.embedding], attentionGain)
  ]
}

const feedForwardOf = (a: Architecture, index: number): ReadonlyArray<Entry> => {
  const block = `blk.${index}`
  const { experts: e } = a
  const ffnNorm = norm(`${block}.ffn_norm.weight`, a.embedding)
  if (e === undefined || index < e.firstBlock) {
    return [
      ffnNorm,
      matrix(`${block}.ffn_gate.weight`, [a.embedding, a.feedForward]),
      matrix(`${block}.ffn_up.weight`, [a.embedding, a.feedForward]),
      matrix(`${block}.ffn_down.weight`, [a.feedForward, a.embedding], downGain)
    ]
  }
  const router: Spread = { mean: 0, deviation: 1 / Math.sqrt(a.embedding) }
  const shared = e.width * e.shared
  return [
    ffnNorm,
    float(`${block}.ffn_gate_inp.weight`, [a.embedding, e.count], router),
    ...(e.bias ? [float(`${block}.exp_probs_b.bias`, [e.count], { mean: 0, deviation: 0.15 })] : []),
    matrix(`${block}.ffn_gate_exps.weight`, [a.embedding, e.width, e.count]),
    matrix(`${block}.ffn_up_exps.weight`, [a.embedding, e.width, e.count]),
    matrix(`${block}.ffn_down_exps.weight`, [e.width, a.embedding, e.count], downGain),
    matrix(`${block}.ffn_gate_shexp.weight`, [a.embedding, shared]),
    matrix(`${block}.ffn_up_shexp.weight`, [a.embedding, shared]),
    matrix(`${block}.ffn_down_shexp.weight`, [shared, a.embedding], downGain)
  ]
}

type Pair = Shape.Pair

const keysOf = (a: Architecture): ReadonlyArray<Pair> => {
  const { float32, uint32 } = Metadata
  return [
    ["block_count", uint32(a.layers + (a.predicts === true ? 1 : 0))],
    ...(a.predicts === true ? [["nextn_predict_layers", uint32(1)] as const] : []),
    ["context_length", uint32(a.contextLength)],
    ["embedding_length", uint32(a.embedding)],
    ["feed_forward_length", uint32(a.feedForward)],
    ["vocab_size", uint32(a.vocabulary)],
    ["attention.head_count", uint32(a.heads)],
    // keys and values are read as one head, as the cache holds them
    ["attention.head_count_kv", uint32(1)],
    ["attention.layer_norm_rms_epsilon", float32(a.epsilon)],
    ...(a.queryRank === 0 ? [] : [["attention.q_lora_rank", uint32(a.queryRank)] as const]),
    ["attention.kv_lora_rank", uint32(a.latent)],
    ["attention.key_length", uint32(a.latent + a.rotated)],
    ["attention.value_length", uint32(a.latent)],
    ["attention.key_length_mla", uint32(a.plain + a.rotated)],
    ["attention.value_length_mla", uint32(a.value)],
    ["rope.dimension_count", uint32(a.rotated)],
    ["rope.freq_base", float32(a.ropeBase)],
    ...yarnKeys(a),
    ...expertKeys(a)
  ]
}

const yarnKeys = ({ yarn }: Architecture): ReadonlyArray<Pair> =>
  yarn === undefined ? [] : [
    ["rope.scaling.type", Metadata.string("yarn")],
    ["rope.scaling.factor", Metadata.float32(yarn.factor)],
    ["rope.scaling.original_context_length", Metadata.uint32(yarn.originalContext)],
    ["rope.scaling.yarn_log_multiplier", Metadata.float32(yarn.multiplier)]
  ]

const expertKeys = (a: Architecture): ReadonlyArray<Pair> => {
  const { bool, float32, uint32 } = Metadata
  const { experts: e } = a
  if (e === undefined) {
    return [
      ["leading_dense_block_count", uint32(a.layers)],
      ["expert_shared_count", uint32(0)],
      ["expert_feed_forward_length", uint32(a.feedForward)]
    ]
  }
  return [
    ["leading_dense_block_count", uint32(e.firstBlock)],
    ["expert_count", uint32(e.count)],
    ["expert_used_count", uint32(e.used)],
    ["expert_shared_count", uint32(e.shared)],
    ["expert_feed_forward_length", uint32(e.width)],
    ["expert_group_count", uint32(1)],
    ["expert_group_used_count", uint32(1)],
    ["expert_gating_func", uint32(e.gating === "softmax" ? 1 : 2)],
    ["expert_weights_scale", float32(e.scale)],
    ...(e.normalise ? [["expert_weights_norm", bool(true)] as const] : [])
  ]
}
