/** Which tensors a model needs, with which dimensions, and where they are in a file. */
import type { Name } from "@tg/gguf/GgufType"
import * as Layout from "@tg/gguf/Layout"
import { Result, Schema } from "effect"

/** A tensor of the file that the model uses. */
export interface WeightRef {
  readonly name: string
  readonly layout: Layout.Layout
}

/** The weights of one block by role, in the order of the model. */
export type BlockWeights<Role extends string = string> = { readonly [R in Role]?: WeightRef }

/** All weights of a model. With tied embeddings `output` is `tokenEmbedding`. */
export interface ModelWeights<Role extends string = string> {
  readonly tokenEmbedding: WeightRef
  readonly outputNorm: WeightRef
  readonly output: WeightRef
  readonly blocks: ReadonlyArray<BlockWeights<Role>>
  /** What belongs to no block, by its name in the file. */
  readonly others: ReadonlyMap<string, WeightRef>
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

/** A role that a block needs, and the dimensions of its tensor, fastest first. */
export type Wanted<Role extends string = string> = readonly [role: Role, dims: ReadonlyArray<number>]

/** The end of a tensor's name: a role with a dot has its own, and one that is known by another. */
const suffixOf = (role: string): string =>
  role === "exp_probs_b" ? ".bias" : role.includes(".") && !role.startsWith("nextn.") ? "" : ".weight"

/** `blk.3.attn_q.weight` */
export const fileName = (block: number, role: string): string => `blk.${block}.${role}${suffixOf(role)}`

/** `blk.12.attn_norm.weight` is of block 12. */
export const blockOf = (name: string): number | undefined => {
  const found = /^blk\.(\d{1,9})\./.exec(name)
  return found === null ? undefined : Number(found[1])
}

/** What a model wants of a file. */
export interface Wants<Role extends string> {
  readonly layers: number
  readonly embedding: number
  readonly vocabulary: number
  /** The first blocks of runs that want the same, in order: 0 and where experts begin, for example. */
  readonly runs: ReadonlyArray<number>
  /** What a block needs; the forms of a file are told by the tensors it has. */
  readonly ofBlock: (block: number, has: (role: Role) => boolean) => ReadonlyArray<Wanted<Role>>
  /** Tensors outside of the blocks that are taken if they are there. */
  readonly optional?: ReadonlyArray<readonly [name: string, dims: ReadonlyArray<number>]> | undefined
  /** Tensors that may be there although nobody asks for them. */
  readonly isKnown: (name: string, asked: ReadonlySet<string>) => boolean
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

/** The weights of one block. */
const takeBlock = <Role extends string>(
  ofBlock: Wants<Role>["ofBlock"],
  block: number,
  { tensorsByName }: HasTensors,
  take: ReturnType<typeof search>["take"]
): BlockWeights<Role> => {
  const found: { [R in Role]?: WeightRef } = {}
  for (const [role, dims] of ofBlock(block, (role) => tensorsByName.has(fileName(block, role)))) {
    const ref = take(fileName(block, role), dims)
    if (ref !== undefined) found[role] = ref
  }
  return found
}

/**
 * The weights of every block. Metadata may ask for two thousand million blocks where the file has three: blocks without
 * any tensor are counted, not walked through, as soon as enough of what is missing has a name.
 */
const findBlocks = <Role extends string>(
  { layers, ofBlock, runs }: Wants<Role>,
  file: HasTensors,
  { isFull, miss, take }: ReturnType<typeof search>
): Array<BlockWeights<Role>> => {
  const present = new Set([...file.tensorsByName.keys()].map(blockOf).filter((b) => b !== undefined && b < layers))
  const blocks: Array<BlockWeights<Role>> = []
  const next = (block: number) => blocks.push(takeBlock(ofBlock, block, file, take))
  let block = 0
  for (; block < layers && !(isFull() && !present.has(block)); block++) next(block)
  if (block === layers) return blocks
  const rest = [...present].filter((other) => other! > block)
  for (const other of rest) next(other!)
  for (const [i, first] of runs.entries()) {
    const from = Math.max(first, block)
    const to = Math.min(runs[i + 1] ?? layers, layers)
    const empty = to - from - rest.filter((other) => other! >= from && other! < to).length
    if (empty > 0) miss(empty * ofBlock(from, () => false).length)
  }
  return blocks
}

/** Finds the tensors of a model in its file, which holds no others. */
export const find = <Role extends string>(
  wants: Wants<Role>,
  file: HasTensors
): Result.Result<ModelWeights<Role>, WeightError> => {
  const found = search(file)
  const { all, asked, take } = found
  const { embedding, vocabulary } = wants
  const tokenEmbedding = take("token_embd.weight", [embedding, vocabulary])
  const blocks = findBlocks(wants, file, found)
  const outputNorm = take("output_norm.weight", [embedding])
  const output = file.tensorsByName.has("output.weight")
    ? take("output.weight", [embedding, vocabulary])
    : tokenEmbedding
  const others = new Map<string, WeightRef>()
  for (const [name, dims] of wants.optional ?? []) {
    const ref = file.tensorsByName.has(name) ? take(name, dims) : undefined
    if (ref !== undefined) others.set(name, ref)
  }
  const leftover = [...file.tensorsByName.keys()].filter((name) => !asked.has(name) && !wants.isKnown(name, asked))
  const problem = found.problems(leftover)
  if (problem !== undefined) return Result.fail(problem)
  return Result.succeed({
    tokenEmbedding: tokenEmbedding!,
    outputNorm: outputNorm!,
    output: output!,
    blocks,
    others,
    all
  })
}

/** The weights of a multi-token prediction block, which is the one behind the blocks of the model. */
export interface PredictionWeights<Role extends string = string> {
  /** Joins an embedding and a hidden row, `[embedding, 2 embedding]`, and their norms. */
  readonly projection: WeightRef
  readonly embeddingNorm: WeightRef
  readonly hiddenNorm: WeightRef
  /** What it has in common with an ordinary block. */
  readonly block: BlockWeights<Role>
  /** The norm behind the block, the embedding and the output matrix: its own, or those of the model. */
  readonly headNorm: WeightRef
  readonly embedding: WeightRef
  readonly head: WeightRef
  /** Every tensor that it reads, once. */
  readonly all: ReadonlyArray<WeightRef>
}

/** Finds the tensors of the first prediction block of a file, whose model has been found. */
export const findPrediction = <Role extends string>(
  { embedding, layers, ofBlock, vocabulary }: Pick<Wants<Role>, "embedding" | "layers" | "ofBlock" | "vocabulary">,
  model: ModelWeights<Role>,
  file: HasTensors
): Result.Result<PredictionWeights<Role>, WeightError> => {
  const found = search(file)
  const take = (role: string, dims: ReadonlyArray<number>) => found.take(fileName(layers, `nextn.${role}`), dims)
  const maybe = (role: string, dims: ReadonlyArray<number>, otherwise: WeightRef) =>
    file.tensorsByName.has(fileName(layers, `nextn.${role}`)) ? take(role, dims) : otherwise
  const projection = take("eh_proj", [2 * embedding, embedding])
  const embeddingNorm = take("enorm", [embedding])
  const hiddenNorm = take("hnorm", [embedding])
  const headNorm = maybe("shared_head_norm", [embedding], model.outputNorm)
  const rows = maybe("embed_tokens", [embedding, vocabulary], model.tokenEmbedding)
  const head = maybe("shared_head_head", [embedding, vocabulary], model.output)
  const block = takeBlock(ofBlock, layers, file, found.take)
  const problem = found.problems([])
  if (problem !== undefined) return Result.fail(problem)
  return Result.succeed({
    projection: projection!,
    embeddingNorm: embeddingNorm!,
    hiddenNorm: hiddenNorm!,
    block,
    headNorm: headNorm!,
    embedding: rows!,
    head: head!,
    all: [...new Set([...found.all, headNorm!, rows!, head!])]
  })
}

/** What a multi-token prediction block may hold beside the tensors of an ordinary one. */
const predictionRoles = ["eh_proj", "enorm", "hnorm", "shared_head_norm", "embed_tokens", "shared_head_head"]

/** Whether a tensor belongs to a prediction block, which the forward pass leaves out; `roles` are those of all blocks. */
export const isPrediction = (
  name: string,
  { count, file, layers, roles }: {
    readonly file: HasTensors
    readonly layers: number
    readonly count: number
    readonly roles: ReadonlySet<string>
  }
): boolean => {
  const block = blockOf(name)
  if (block === undefined || block < layers || block >= layers + count) return false
  if (!file.tensorsByName.has(`blk.${block}.nextn.eh_proj.weight`)) return false
  const own = name.slice(`blk.${block}.`.length)
  return [...roles].some((role) => own === `${role}${suffixOf(role)}`) ||
    predictionRoles.some((role) => own === `nextn.${role}.weight`)
}
