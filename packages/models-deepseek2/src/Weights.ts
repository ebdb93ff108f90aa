/** Which tensors a model needs, with which dimensions, and where they are in a file. */
import type { Name } from "@tg/gguf/GgufType"
import * as Layout from "@tg/gguf/Layout"
import { Result, Schema } from "effect"
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

/** A tensor of the file that the model uses. */
export interface WeightRef {
  readonly name: string
  readonly layout: Layout.Layout
}

/** The weights of one block. */
export type BlockWeights = { readonly [R in Role]?: WeightRef }

/** All weights of a model. With tied embeddings `output` is `tokenEmbedding`. */
export interface ModelWeights {
  readonly tokenEmbedding: WeightRef
  readonly outputNorm: WeightRef
  readonly output: WeightRef
  readonly blocks: ReadonlyArray<BlockWeights>
  /** Every tensor once, in the order of the model. */
  readonly all: ReadonlyArray<WeightRef>
}

/** A tensor as the table of a file lists it; dimensions fastest first. */
export interface FileTensor {
  readonly name: string
  readonly type: Name
  readonly dims: ReadonlyArray<number>
}

/** The tensors of a file. */
export interface HasTensors {
  readonly name: string
  readonly tensorsByName: ReadonlyMap<string, FileTensor>
}

/** Tensors that are missing, have other dimensions than the metadata say, are of a type without a layout, or are left over. */
export class WeightError extends Schema.TaggedError<WeightError>()("WeightError", {
  file: Schema.String,
  /** The first of them: metadata can ask for more tensors than there is memory for their names. */
  missing: Schema.Array(Schema.String),
  /** How many more are missing than are named. */
  missingMore: Schema.Finite,
  misshapen: Schema.Array(Schema.String),
  unsupported: Schema.Array(Schema.String),
  /** Tensors of the file that the model has no use for: what it says without them would be something else. */
  leftover: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return `${this.file}: the tensors do not fit the metadata${list("missing", this.missing, this.missingMore)}` +
      `${list("other dimensions", this.misshapen)}${list("unsupported types", this.unsupported)}` +
      `${list("not used by the model", this.leftover)}` +
      "; convert the model again, or get all parts of a split file"
  }
}

/** Names in an error; of missing tensors no more are kept either. */
const named = 8

const list = (what: string, names: ReadonlyArray<string>, more = 0): string => {
  if (names.length === 0) return ""
  const rest = more + Math.max(0, names.length - named)
  return `; ${what}: ${names.slice(0, named).map(clip).join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`
}

// a name in a damaged file can be as long as the file
const clip = (name: string): string => name.length <= 200 ? name : `${name.slice(0, 200)}…`

type Wanted = readonly [role: Role, dims: ReadonlyArray<number>]

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

const fileName = (block: number, role: Role): string =>
  `blk.${block}.${role}.${role === "exp_probs_b" ? "bias" : "weight"}`

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

/** `blk.12.attn_norm.weight` is of block 12. */
const blockOf = (name: string): number | undefined => {
  const found = /^blk\.(\d{1,9})\./.exec(name)
  return found === null ? undefined : Number(found[1])
}

/** Looks tensors up, and keeps what is wrong with them. */
const search = (file: HasTensors) => {
  const missing: Array<string> = []
  const misshapen: Array<string> = []
  const unsupported: Array<string> = []
  const all: Array<WeightRef> = []
  const asked = new Set<string>()
  let missingMore = 0
  const take = (name: string, dims: ReadonlyArray<number>): WeightRef | undefined => {
    const tensor = file.tensorsByName.get(name)
    if (tensor === undefined) {
      if (missing.length < named) missing.push(name)
      else missingMore++
      return undefined
    }
    asked.add(name)
    // trailing dimensions of 1 are not always written
    const found = dims.map((_, i) => tensor.dims[i] ?? 1)
    if (tensor.dims.length > dims.length || found.some((d, i) => d !== dims[i])) {
      misshapen.push(`${name} [${tensor.dims.join(" ")}] instead of [${dims.join(" ")}]`)
      return undefined
    }
    if (!Layout.types.includes(tensor.type)) {
      unsupported.push(`${name} (${tensor.type})`)
      return undefined
    }
    const ref = { name, layout: Layout.layoutOf(tensor.type, dims.toReversed()) }
    all.push(ref)
    return ref
  }
  const problems = (leftover: ReadonlyArray<string>) =>
    missing.length + misshapen.length + unsupported.length + leftover.length === 0
      ? undefined
      : new WeightError({ file: file.name, missing, missingMore, misshapen, unsupported, leftover })
  return {
    take,
    all,
    asked,
    problems,
    isFull: () => missing.length >= named,
    miss: (count: number) => {
      missingMore += count
    }
  }
}

/**
 * The weights of every block. Metadata may ask for two thousand million blocks where the file has three: blocks without
 * any tensor are counted, not walked through, as soon as enough of what is missing has a name.
 */
const findBlocks = (
  config: Config,
  file: HasTensors,
  { isFull, miss, take }: ReturnType<typeof search>
): Array<BlockWeights> => {
  const names = [...file.tensorsByName.keys()]
  const present = new Set(names.map(blockOf).filter((block) => block !== undefined && block < config.layers))
  const bias = fileName(0, "exp_probs_b").slice("blk.0".length)
  const biased = names.some((name) => name.endsWith(bias) && present.has(blockOf(name)))
  const blocks: Array<BlockWeights> = []
  const takeBlock = (block: number): void => {
    const has = (role: Role): boolean => file.tensorsByName.has(fileName(block, role))
    const found: { [R in Role]?: WeightRef } = {}
    for (const [role, dims] of blockWants(config, block, { biased, has })) {
      const ref = take(fileName(block, role), dims)
      if (ref !== undefined) found[role] = ref
    }
    blocks.push(found)
  }
  let block = 0
  for (; block < config.layers && !(isFull() && !present.has(block)); block++) takeBlock(block)
  if (block === config.layers) return blocks
  const rest = [...present].filter((other) => other! > block)
  for (const other of rest) takeBlock(other!)
  const firstExpert = config.experts === undefined ? config.layers : config.experts.firstBlock
  const wantsOf = (each: number): number => blockWants(config, each, { biased, has: () => false }).length
  for (
    const [from, to] of [[block, Math.min(firstExpert, config.layers)], [Math.max(firstExpert, block), config.layers]]
  ) {
    const empty = to! - from! - rest.filter((other) => other! >= from! && other! < to!).length
    if (empty > 0) miss(empty * wantsOf(from!))
  }
  return blocks
}

/**
 * Tensors that belong to no part of the model. Known, and not among them: prediction blocks, which the forward pass leaves
 * out, and the keys and values in one tensor beside the same in two, as some conversions write both.
 */
const leftovers = (config: Config, file: HasTensors, asked: ReadonlySet<string>): ReadonlyArray<string> => {
  const { layers, predictionBlocks } = config
  const isPrediction = (block: number): boolean =>
    block >= layers && block < layers + predictionBlocks &&
    file.tensorsByName.has(`blk.${block}.nextn.eh_proj.weight`)
  const twice = /^(blk\.\d+\.)attn_kv_b\.weight$/
  return [...file.tensorsByName.keys()].filter((name) => {
    if (asked.has(name)) return false
    const block = blockOf(name)
    if (block !== undefined && isPrediction(block)) return !predictionNames.test(name)
    const prefix = twice.exec(name)?.[1]
    return prefix === undefined || !asked.has(`${prefix}attn_k_b.weight`)
  })
}

const nextnRoles = ["eh_proj", "enorm", "hnorm", "shared_head_norm", "embed_tokens", "shared_head_head"]
const roles = [
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
  "ffn_gate_exps",
  "ffn_up_exps",
  "ffn_gate_up_exps",
  "ffn_down_exps",
  "ffn_gate_shexp",
  "ffn_up_shexp",
  "ffn_down_shexp"
] satisfies ReadonlyArray<Role>

/** What a prediction block may hold. */
const predictionNames = new RegExp(
  `^blk\\.\\d+\\.(?:exp_probs_b\\.bias|(?:${
    [...roles, ...nextnRoles.map((role) => `nextn\\.${role}`)].join("|")
  })\\.weight)$`
)

/** Finds the tensors of a model in its file, which holds no others. */
export const find = (config: Config, file: HasTensors): Result.Result<ModelWeights, WeightError> => {
  const found = search(file)
  const { all, take } = found
  const tokenEmbedding = take("token_embd.weight", [config.embedding, config.vocabulary])
  const blocks = findBlocks(config, file, found)
  const outputNorm = take("output_norm.weight", [config.embedding])
  const output = file.tensorsByName.has("output.weight")
    ? take("output.weight", [config.embedding, config.vocabulary])
    : tokenEmbedding
  const problem = found.problems(leftovers(config, file, found.asked))
  if (problem !== undefined) return Result.fail(problem)
  return Result.succeed({ tokenEmbedding: tokenEmbedding!, outputNorm: outputNorm!, output: output!, blocks, all })
}
