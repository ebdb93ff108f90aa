/**
 * Known models as data: the metadata and the tensor table of their files, without weights. What a plan needs, and what a
 * synthetic file is made from.
 */
import * as GgufType from "@tg/gguf/GgufType"
import * as Metadata from "@tg/gguf/Metadata"
import { Result, Schema } from "effect"
import * as Mixes from "./Mixes.ts"

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

/** How the values of a tensor are spread: around `mean`, with this standard deviation. */
export interface Spread {
  readonly mean: number
  readonly deviation: number
}

/** One tensor of a shape; dimensions in file order, the fastest first. */
export interface ShapeTensor {
  readonly name: string
  readonly type: GgufType.Name
  readonly dims: ReadonlyArray<number>
  readonly bytes: number
  /** Values that keep activations at the scale of a trained model's. */
  readonly spread: Spread
}

/** A model without weights. It reads like the header of its file: `Config.fromMetadata` and `Weights.find` take it. */
export interface Shape {
  /** `glm-4.7-flash:q4_0` */
  readonly name: string
  readonly architecture: Architecture
  /** Without the keys of the tokenizer. */
  readonly metadata: ReadonlyMap<string, Metadata.MetadataValue>
  /** In file order. */
  readonly tensors: ReadonlyArray<ShapeTensor>
  readonly tensorsByName: ReadonlyMap<string, ShapeTensor>
}

/** A name that is not `MODEL:MIX`, or no known one. */
export class UnknownShape extends Schema.TaggedError<UnknownShape>()("UnknownShape", {
  asked: Schema.String,
  known: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return `there is no shape ${JSON.stringify(this.asked)}; known are ${this.known.join(", ")}`
  }
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

/** Every known architecture, by name. */
export const architectures: ReadonlyMap<string, Architecture> = new Map(
  [glm, lite, youtu, tiny(glm, "tiny-glm"), tiny(lite, "tiny-lite"), tiny(youtu, "tiny-youtu")].map((a) => [a.name, a])
)

/** The full names of all shapes. */
export const names: ReadonlyArray<string> = [...architectures.keys()].flatMap((name) =>
  Mixes.names.map((mix) => `${name}:${mix}`)
)

/** The shape of a name, with fewer blocks if `layers` says so: `glm-4.7-flash:q4_0`. */
export const find = (name: string, layers?: number): Result.Result<Shape, UnknownShape> => {
  const [model = "", mix = "", ...more] = name.toLowerCase().split(":")
  const architecture = architectures.get(model)
  if (architecture === undefined || !Mixes.isName(mix) || more.length > 0) {
    return Result.fail(new UnknownShape({ asked: name, known: names }))
  }
  return Result.succeed(make(layers === undefined ? architecture : { ...architecture, layers }, mix))
}

/** The shape of an architecture with the types of a mix. */
export const make = (architecture: Architecture, mix: Mixes.Name): Shape => {
  const typeOf = Mixes.typesOf(mix, architecture)
  const tensors = tensorsOf(architecture).map(({ dims, isFloat, name, spread }): ShapeTensor => {
    const type = isFloat ? "F32" : typeOf(name, dims[0]!)
    return { name, type, dims, bytes: bytesOf(type, dims), spread }
  })
  return {
    name: `${architecture.name}:${mix}`,
    architecture,
    metadata: metadataOf(architecture, mix),
    tensors,
    tensorsByName: new Map(tensors.map((tensor) => [tensor.name, tensor]))
  }
}

const bytesOf = (type: GgufType.Name, dims: ReadonlyArray<number>): number => {
  const bytes = GgufType.bytesOf(type, dims)
  // a mix falls back to a type whose blocks divide the row
  if (typeof bytes !== "number") throw new Error(`${type} [${dims.join(", ")}] ${bytes.detail}`)
  return bytes
}

interface Entry {
  readonly name: string
  readonly dims: ReadonlyArray<number>
  /** Norms, the router and its bias are never quantised. */
  readonly isFloat: boolean
  readonly spread: Spread
}

/** Products with a matrix keep the size of their input when its values deviate by 1 / sqrt(row). */
const matrix = (name: string, dims: ReadonlyArray<number>, gain = 1): Entry => ({
  name,
  dims,
  isFloat: false,
  spread: { mean: 0, deviation: gain / Math.sqrt(dims[0]!) }
})

const float = (name: string, dims: ReadonlyArray<number>, spread: Spread): Entry => ({
  name,
  dims,
  isFloat: true,
  spread
})

const norm = (name: string, size: number): Entry => float(name, [size], { mean: 1, deviation: 0.15 })

// Logits spread over a few units, residual branches add less than the stream holds: measured to give varied text.
const outputGain = 2
const attentionGain = 0.6
const downGain = 0.8
const embeddingDeviation = 0.5

const tensorsOf = (a: Architecture): ReadonlyArray<Entry> => {
  const embedding: Entry = {
    ...matrix("token_embd.weight", [a.embedding, a.vocabulary], outputGain),
    ...(a.tied ? {} : { spread: { mean: 0, deviation: embeddingDeviation } })
  }
  const output = a.tied ? [] : [matrix("output.weight", [a.embedding, a.vocabulary], outputGain)]
  return [
    embedding,
    norm("output_norm.weight", a.embedding),
    ...output,
    ...Array.from({ length: a.layers }, (_, block) => [
      ...attentionOf(a, `blk.${block}`),
      ...feedForwardOf(a, block)
    ]).flat()
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

type Pair = readonly [key: string, value: Metadata.MetadataValue]

const metadataOf = (a: Architecture, mix: Mixes.Name): ReadonlyMap<string, Metadata.MetadataValue> => {
  const own = (pairs: ReadonlyArray<Pair>): ReadonlyArray<Pair> =>
    pairs.map(([key, value]) => [`deepseek2.${key}`, value])
  const { float32, string, uint32 } = Metadata
  return new Map<string, Metadata.MetadataValue>([
    ["general.architecture", string("deepseek2")],
    ["general.type", string("model")],
    ["general.name", string(`${a.name}-synthetic`)],
    ["general.file_type", uint32(Mixes.fileType(mix))],
    ["general.quantization_version", uint32(2)],
    ...own([
      ["block_count", uint32(a.layers)],
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
    ])
  ])
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
