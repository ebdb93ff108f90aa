/** One transformer block as a function of its input, its cache and its weights. */
import { asQuery, attention } from "@tg/model-parts/CachedAttention"
import type * as Decoder from "@tg/model-parts/Decoder"
import { feedForward, linear, project } from "@tg/model-parts/FeedForward"
import * as Norm from "@tg/model-parts/Norm"
import * as Places from "@tg/model-parts/Places"
import type { Operand } from "@tg/model-parts/Product"
import { rotate } from "@tg/model-parts/Rotary"
import { shared } from "@tg/model-parts/Schedule"
import * as Nn from "@tg/tensor/Nn"
import { after } from "@tg/tensor/Program"
import type { Tensor } from "@tg/tensor/Tensor"
import * as Cache from "./Cache.ts"
import { type Config, headsPerKey } from "./Config.ts"

/** What a block computes on; its host input are cosines and sines, `[T, rotated / 2, 2]`. */
export interface BlockInput extends Decoder.BlockInput {
  readonly config: Config
  readonly epsilon: number
  /** Positions that a token sees, itself included; all before it if it is not said. */
  readonly window: number | undefined
}

/** Queries, keys and values of each token: `[T, heads, size]`. */
interface Projections {
  readonly query: Tensor
  readonly key: Tensor
  readonly value: Tensor
}

const projections = (input: BlockInput, x: Operand): Projections => {
  const { config, weights } = input
  const { headSize, heads, keyValueHeads } = config
  const byHead = (y: Tensor, count: number): Tensor => y.reshape([y.dim(0), count, headSize])
  if (weights("attn_qkv") === undefined) {
    const of = (role: string, count: number): Tensor => byHead(project(input, x, role), count)
    return { query: of("attn_q", heads), key: of("attn_k", keyValueHeads), value: of("attn_v", keyValueHeads) }
  }
  const all = project(input, x, "attn_qkv")
  const of = (first: number, count: number): Tensor => byHead(all.slice(-1, first * headSize, count * headSize), count)
  return {
    query: of(0, heads),
    key: of(heads, keyValueHeads),
    value: of(heads + keyValueHeads, keyValueHeads)
  }
}

/** The norm of each head, if the block has one, and then the rotation of its first values. */
const turned = (input: BlockInput, x: Tensor, role: "attn_q_norm" | "attn_k_norm"): Tensor => {
  const { config: { headSize, rotated, traits }, input: cosSin, weights } = input
  const heads = weights(role) === undefined ? x : shared(input, Norm.norm(input, x, role))
  if (rotated === headSize) return rotate(heads, cosSin, traits.pairs)
  const first = rotate(heads.slice(-1, 0, rotated), cosSin, traits.pairs)
  return Nn.cat([first, heads.slice(-1, rotated, headSize - rotated)], -1)
}

/** Attention over the cache, whose rows of these tokens are written first. `x` is normalised. */
const attended = (input: BlockInput, x: Operand): { readonly output: Tensor; readonly write: Tensor } => {
  const { cache, config, places, startPos } = input
  const { headSize, heads, keyValueHeads } = config
  const tokens = x.values.dim(0)
  const { key, query, value } = projections(input, x)
  const rows = Cache.pack(config, cache, [turned(input, key, "attn_k_norm"), value])
  const ring = places === undefined ? Cache.ringIn(Number(cache.dim(0)), input.window) : undefined
  const first = ring === undefined ? startPos : startPos.mod(ring.positions)
  const write = Places.write(cache, rows, { first, places }).label("cache")
  const full = asQuery(input, turned(input, query, "attn_q_norm").mul(config.attentionScale))
  const grouped = full.reshape([tokens, keyValueHeads, headsPerKey(config), headSize])
  const mixed = attention(Cache.reader(config), { ...input, ring }, grouped, after(cache, [write]))
  return { output: linear(input, mixed.reshape([tokens, heads * headSize]), "attn_output"), write }
}

/** What a half of the block adds to the stream: normalised, where there is a norm behind it. */
const added = (input: BlockInput, output: Tensor, role: string): Tensor =>
  input.config.traits.normsAfter ? Norm.norm(input, shared(input, output), role) : output

/** One block. */
export const block = (input: BlockInput): Decoder.BlockOutput => {
  const { config: { experts, traits }, x } = input
  const { output, write } = attended(input, Norm.operand(input, x, "attn_norm"))
  const middle = shared(input, x.add(added(input, output, "post_attention_norm")).label("ffn_inp"))
  const ffn = feedForward({ ...input, gate: traits.gate }, experts, middle, traits.feedForwardNorm)
  return { x: middle.add(added(input, ffn.output, "post_ffw_norm")).label("l_out"), write, chosen: ffn.chosen }
}
