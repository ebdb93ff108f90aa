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

/** Tensors that are missing, have other dimensions than the metadata say, or are of a type without a layout. */
export class WeightError extends Schema.TaggedError<WeightError>()("WeightError", {
  file: Schema.String,
  missing: Schema.Array(Schema.String),
  misshapen: Schema.Array(Schema.String),
  unsupported: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return `${this.file}: the tensors do not fit the metadata${list("missing", this.missing)}` +
      `${list("other dimensions", this.misshapen)}${list("unsupported types", this.unsupported)}` +
      "; convert the model again, or get all parts of a split file"
  }
}

const list = (what: string, names: ReadonlyArray<string>): string =>
  names.length === 0
    ? ""
    : `; ${what}: ${names.slice(0, 8).join(", ")}${names.length > 8 ? ` and ${names.length - 8} more` : ""}`

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

const feedForward = (c: Config, block: number, has: (role: Role) => boolean): ReadonlyArray<Wanted> => {
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
    ...(has("exp_probs_b") ? [["exp_probs_b", [count]] as const] : []),
    ...gateUp,
    ["ffn_down_exps", [width, c.embedding, count]],
    ...sharedExpert
  ]
}

const fileName = (block: number, role: Role): string =>
  `blk.${block}.${role}.${role === "exp_probs_b" ? "bias" : "weight"}`

/** Finds the tensors of a model in its file. */
export const find = (config: Config, file: HasTensors): Result.Result<ModelWeights, WeightError> => {
  const missing: Array<string> = []
  const misshapen: Array<string> = []
  const unsupported: Array<string> = []
  const all: Array<WeightRef> = []
  const take = (name: string, dims: ReadonlyArray<number>): WeightRef | undefined => {
    const tensor = file.tensorsByName.get(name)
    if (tensor === undefined) {
      missing.push(name)
      return undefined
    }
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
  const tokenEmbedding = take("token_embd.weight", [config.embedding, config.vocabulary])
  const blocks = Array.from({ length: config.layers }, (_, block): BlockWeights => {
    const has = (role: Role): boolean => file.tensorsByName.has(fileName(block, role))
    const wanted: ReadonlyArray<Wanted> = [
      ...attention(config, has),
      ["ffn_norm", [config.embedding]],
      ...feedForward(config, block, has)
    ]
    const found: { [R in Role]?: WeightRef } = {}
    for (const [role, dims] of wanted) {
      const ref = take(fileName(block, role), dims)
      if (ref !== undefined) found[role] = ref
    }
    return found
  })
  const outputNorm = take("output_norm.weight", [config.embedding])
  const output = file.tensorsByName.has("output.weight")
    ? take("output.weight", [config.embedding, config.vocabulary])
    : tokenEmbedding
  const wrong = missing.length + misshapen.length + unsupported.length > 0
  return wrong || tokenEmbedding === undefined || outputNorm === undefined || output === undefined
    ? Result.fail(new WeightError({ file: file.name, missing, misshapen, unsupported }))
    : Result.succeed({ tokenEmbedding, outputNorm, output, blocks, all })
}
