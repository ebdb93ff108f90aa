/** Which tensors a model needs, with which dimensions. */
import * as Weights from "@tg/model-parts/Weights"
import type { Result } from "effect"
import type { Config } from "./Config.ts"

const matrices = [
  "attn_q",
  "attn_k",
  "attn_v",
  "attn_qkv",
  "attn_output",
  "ffn_gate",
  "ffn_up",
  "ffn_down",
  "ffn_gate_exps",
  "ffn_up_exps",
  "ffn_gate_up_exps",
  "ffn_down_exps",
  "ffn_gate_shexp",
  "ffn_up_shexp",
  "ffn_down_shexp"
] as const

type Matrix = typeof matrices[number]

const others = [
  "attn_norm",
  "attn_q_norm",
  "attn_k_norm",
  "post_attention_norm",
  "ffn_norm",
  "post_ffw_norm",
  "ffn_gate_inp",
  "exp_probs_b"
] as const

/** What a block may have, under the names of the file without `blk.i.`, and without `.weight`. */
export type Role = Matrix | `${Matrix}.bias` | `${Matrix}.scale` | typeof others[number]

/** The weights of a model. */
export type ModelWeights = Weights.ModelWeights<Role>

type Wanted = Weights.Wanted<Role>
type Has = (role: Role) => boolean

/** A matrix, its bias where the architecture may have one and the file has, and its factors where the file has them. */
const matrix = (config: Config, has: Has, role: Matrix, dims: ReadonlyArray<number>): ReadonlyArray<Wanted> => {
  const bias = `${role}.bias` as const
  const scale = `${role}.scale` as const
  return [
    [role, dims],
    ...(config.traits.biases.includes(role) && has(bias) ? [[bias, [dims[1]!]] as const] : []),
    ...(has(scale) ? [[scale, [dims[2] ?? 1]] as const] : [])
  ]
}

const attention = (config: Config, has: Has): ReadonlyArray<Wanted> => {
  const { embedding, headSize, heads, keyValueHeads, traits } = config
  const [query, key] = [heads * headSize, keyValueHeads * headSize]
  const projections = has("attn_qkv") && !has("attn_q")
    ? matrix(config, has, "attn_qkv", [embedding, query + 2 * key])
    : [
      ...matrix(config, has, "attn_q", [embedding, query]),
      ...matrix(config, has, "attn_k", [embedding, key]),
      ...matrix(config, has, "attn_v", [embedding, key])
    ]
  const isNormed = traits.headNorms === "all" ||
    traits.headNorms === "optional" && (has("attn_q_norm") || has("attn_k_norm"))
  const headNorms: ReadonlyArray<Wanted> = isNormed
    ? [["attn_q_norm", [headSize]], ["attn_k_norm", [headSize]]]
    : []
  const normAfter: ReadonlyArray<Wanted> = traits.normsAfter ? [["post_attention_norm", [embedding]]] : []
  return [
    ["attn_norm", [embedding]],
    ...projections,
    ...headNorms,
    ...matrix(config, has, "attn_output", [query, embedding]),
    ...normAfter
  ]
}

/** `biased`: whether the experts of the model are chosen with a bias, which is then one of every block. */
const feedForward = (config: Config, block: number, has: Has, biased: boolean): ReadonlyArray<Wanted> => {
  const { embedding: e, experts, feedForward: width } = config
  if (experts === undefined || block < experts.firstBlock) {
    return [
      ...matrix(config, has, "ffn_gate", [e, width]),
      ...matrix(config, has, "ffn_up", [e, width]),
      ...matrix(config, has, "ffn_down", [width, e])
    ]
  }
  const { count, shared, width: own } = experts
  const gateUp = has("ffn_gate_up_exps")
    ? matrix(config, () => false, "ffn_gate_up_exps", [e, 2 * own, count])
    : [
      ...matrix(config, has, "ffn_gate_exps", [e, own, count]),
      ...matrix(config, has, "ffn_up_exps", [e, own, count])
    ]
  return [
    ["ffn_gate_inp", [e, count]],
    ...(biased ? [["exp_probs_b", [count]] as const] : []),
    ...gateUp,
    ...matrix(config, has, "ffn_down_exps", [own, e, count]),
    ...(shared === 0 ? [] : [
      ...matrix(config, has, "ffn_gate_shexp", [e, own * shared]),
      ...matrix(config, has, "ffn_up_shexp", [e, own * shared]),
      ...matrix(config, has, "ffn_down_shexp", [own * shared, e])
    ])
  ]
}

/** What a block needs; the forms of a file are told by the tensors it has. */
const ofBlock = (config: Config, biased: boolean) => (block: number, has: Has): ReadonlyArray<Wanted> => {
  const { embedding, traits } = config
  return [
    ...attention(config, has),
    [traits.feedForwardNorm, [embedding]],
    ...feedForward(config, block, has, biased),
    ...(traits.normsAfter ? [["post_ffw_norm", [embedding]] as const] : [])
  ]
}

/** Every role, for the prediction blocks that hold the tensors of an ordinary one, too. */
const roles: ReadonlySet<string> = new Set([
  ...others,
  ...matrices.flatMap((role) => [role, `${role}.bias`, `${role}.scale`])
])

/** Known and left out: prediction blocks, and the scales of activations that some conversions write. */
const isKnown = (config: Config, file: Weights.HasTensors) => (name: string, asked: ReadonlySet<string>): boolean =>
  Weights.isPrediction(name, { file, layers: config.layers, count: config.predictionBlocks, roles }) ||
  name.endsWith(".input_scale") && asked.has(name.replace(/input_scale$/, "weight"))

/** Tensors outside of the blocks that the file may have. */
const optional = ({ rotated, traits, vocabulary }: Config) => {
  const dims = { "rope_freqs.weight": [rotated / 2], "output.bias": [vocabulary] }
  return [...traits.others.map((name) => [name, dims[name]] as const), ["output.scale", [1]] as const]
}

const wants = (config: Config, file: Weights.HasTensors): Weights.Wants<Role> => {
  const { embedding, experts, layers, traits, vocabulary } = config
  const biased = traits.experts === "keys" &&
    [...file.tensorsByName.keys()].some((name) =>
      name.endsWith(".exp_probs_b.bias") && Number(Weights.blockOf(name) ?? Infinity) < layers
    )
  return {
    layers,
    embedding,
    vocabulary,
    runs: experts === undefined ? [0] : [0, experts.firstBlock],
    ofBlock: ofBlock(config, biased),
    optional: optional(config),
    isKnown: isKnown(config, file)
  }
}

/** Finds the tensors of a model in its file, which holds no others. */
export const find = (
  config: Config,
  file: Weights.HasTensors
): Result.Result<ModelWeights, Weights.WeightError> => Weights.find(wants(config, file), file)

/** Finds the tensors of its first prediction block. */
export const findPrediction = (
  config: Config,
  model: ModelWeights,
  file: Weights.HasTensors
): Result.Result<Weights.PredictionWeights<Role>, Weights.WeightError> =>
  Weights.findPrediction(wants(config, file), model, file)
