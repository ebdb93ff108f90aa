/** Which tensors a model needs, with which dimensions. */
import * as Weights from "@tg/model-parts/Weights"
import type { Result } from "effect"
import type { Config } from "./Config.ts"

/** What a block may have, under the names of the file without `blk.i.` and suffix. */
export type Role =
  | "attn_norm"
  | "attn_q"
  | "attn_q_a"
  | "attn_q_a_norm"
  | "attn_q_b"
  | "attn_kv_a_mqa"
  | "attn_kv_a_norm"
  | "attn_k_b"
  | "attn_v_b"
  | "attn_kv_b"
  | "attn_output"
  | "ffn_norm"
  | "ffn_gate"
  | "ffn_up"
  | "ffn_down"
  | "ffn_gate_inp"
  | "exp_probs_b"
  | "ffn_gate_exps"
  | "ffn_up_exps"
  | "ffn_gate_up_exps"
  | "ffn_down_exps"
  | "ffn_gate_shexp"
  | "ffn_up_shexp"
  | "ffn_down_shexp"

/** The weights of a model. */
export type ModelWeights = Weights.ModelWeights<Role>

type Wanted = Weights.Wanted<Role>

const attention = (c: Config, has: (role: Role) => boolean): ReadonlyArray<Wanted> => {
  const head = c.plain + c.rotated
  const query: ReadonlyArray<Wanted> = c.queryRank > 0
    ? [
      ["attn_q_a", [c.embedding, c.queryRank]],
      ["attn_q_a_norm", [c.queryRank]],
      ["attn_q_b", [c.queryRank, c.heads * head]]
    ]
    : [["attn_q", [c.embedding, c.heads * head]]]
  const keyValue: ReadonlyArray<Wanted> = has("attn_kv_b") && !has("attn_k_b")
    ? [["attn_kv_b", [c.latent, c.heads * (c.plain + c.value)]]]
    : [["attn_k_b", [c.plain, c.latent, c.heads]], ["attn_v_b", [c.latent, c.value, c.heads]]]
  return [
    ["attn_norm", [c.embedding]],
    ...query,
    ["attn_kv_a_mqa", [c.embedding, c.latent + c.rotated]],
    ["attn_kv_a_norm", [c.latent]],
    ...keyValue,
    ["attn_output", [c.heads * c.value, c.embedding]]
  ]
}

/** `biased`: whether the experts of the model are chosen with a bias, which is then one of every block. */
const feedForward = (
  c: Config,
  block: number,
  has: (role: Role) => boolean,
  biased: boolean
): ReadonlyArray<Wanted> => {
  const { experts } = c
  if (experts === undefined || block < experts.firstBlock) {
    return [
      ["ffn_gate", [c.embedding, c.feedForward]],
      ["ffn_up", [c.embedding, c.feedForward]],
      ["ffn_down", [c.feedForward, c.embedding]]
    ]
  }
  const { count, shared, width } = experts
  const gateUp: ReadonlyArray<Wanted> = has("ffn_gate_up_exps")
    ? [["ffn_gate_up_exps", [c.embedding, 2 * width, count]]]
    : [["ffn_gate_exps", [c.embedding, width, count]], ["ffn_up_exps", [c.embedding, width, count]]]
  const sharedWidth = width * shared
  const sharedExpert: ReadonlyArray<Wanted> = shared === 0 ? [] : [
    ["ffn_gate_shexp", [c.embedding, sharedWidth]],
    ["ffn_up_shexp", [c.embedding, sharedWidth]],
    ["ffn_down_shexp", [sharedWidth, c.embedding]]
  ]
  return [
    ["ffn_gate_inp", [c.embedding, count]],
    ...(biased ? [["exp_probs_b", [count]] as const] : []),
    ...gateUp,
    ["ffn_down_exps", [width, c.embedding, count]],
    ...sharedExpert
  ]
}

/** What a block needs; the forms of a file are told by the tensors it has. */
const blockWants = (
  config: Config,
  block: number,
  { biased, has }: { readonly biased: boolean; readonly has: (role: Role) => boolean }
): ReadonlyArray<Wanted> => [
  ...attention(config, has),
  ["ffn_norm", [config.embedding]],
  ...feedForward(config, block, has, biased)
]

const roles: ReadonlySet<Role> = new Set([
  "attn_norm",
  "attn_q",
  "attn_q_a",
  "attn_q_a_norm",
  "attn_q_b",
  "attn_kv_a_mqa",
  "attn_kv_a_norm",
  "attn_k_b",
  "attn_v_b",
  "attn_kv_b",
  "attn_output",
  "ffn_norm",
  "ffn_gate",
  "ffn_up",
  "ffn_down",
  "ffn_gate_inp",
  "exp_probs_b",
  "ffn_gate_exps",
  "ffn_up_exps",
  "ffn_gate_up_exps",
  "ffn_down_exps",
  "ffn_gate_shexp",
  "ffn_up_shexp",
  "ffn_down_shexp"
])

/**
 * Tensors of no part of the model that are known: prediction blocks, which the forward pass leaves out, and the keys and
 * values in one tensor beside the same in two, as some conversions write both.
 */
const isKnown = (config: Config, file: Weights.HasTensors) => (name: string, asked: ReadonlySet<string>): boolean => {
  const { layers, predictionBlocks: count } = config
  if (Weights.isPrediction(name, { count, file, layers, roles })) return true
  const prefix = /^(blk\.\d+\.)attn_kv_b\.weight$/.exec(name)?.[1]
  return prefix !== undefined && asked.has(`${prefix}attn_k_b.weight`)
}

const wants = (config: Config, file: Weights.HasTensors): Weights.Wants<Role> => {
  const { embedding, experts, layers, vocabulary } = config
  const biased = [...file.tensorsByName.keys()].some((name) =>
    name.endsWith(".exp_probs_b.bias") && Number(Weights.blockOf(name) ?? Infinity) < layers
  )
  return {
    layers,
    embedding,
    vocabulary,
    runs: experts === undefined ? [0] : [0, experts.firstBlock],
    ofBlock: (block, has) => blockWants(config, block, { biased, has }),
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
