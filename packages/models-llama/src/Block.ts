/** One transformer block as a function of its input, its cache and its weights. */
import { few, whole } from "@tg/model-parts/Attention"
import type * as Decoder from "@tg/model-parts/Decoder"
import { affine, dense, mixture } from "@tg/model-parts/FeedForward"
import { norm, normed, normedForFewRows } from "@tg/model-parts/Norm"
import { keep, keepAlways } from "@tg/model-parts/Order"
import * as Places from "@tg/model-parts/Places"
import { computed, ofTokens, type Operand } from "@tg/model-parts/Product"
import { rotate } from "@tg/model-parts/Rotary"
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
  const { config, order, weights } = input
  const { headSize, heads, keyValueHeads } = config
  const byHead = (y: Tensor, count: number): Tensor => y.reshape([y.dim(0), count, headSize])
  if (weights("attn_qkv") === undefined) {
    // stored, so that the three products are one launch: a value that nothing else needs would wait for the write
    const of = (role: string, count: number): Tensor => byHead(keepAlways(order, affine(weights, x, role)), count)
    return { query: of("attn_q", heads), key: of("attn_k", keyValueHeads), value: of("attn_v", keyValueHeads) }
  }
  const all = keep(order, affine(weights, x, "attn_qkv"))
  const of = (first: number, count: number): Tensor => byHead(all.slice(-1, first * headSize, count * headSize), count)
  return {
    query: of(0, heads),
    key: of(heads, keyValueHeads),
    value: of(heads + keyValueHeads, keyValueHeads)
  }
}

/** The norm of each head, if the block has one, and then the rotation of its first values. */
const turned = (input: BlockInput, x: Tensor, role: "attn_q_norm" | "attn_k_norm"): Tensor => {
  const { config: { headSize, rotated, traits }, input: cosSin, order, weights } = input
  const heads = weights(role) === undefined ? x : keep(order, norm(input, x, role))
  if (rotated === headSize) return rotate(heads, cosSin, traits.pairs)
  const first = rotate(heads.slice(-1, 0, rotated), cosSin, traits.pairs)
  return Nn.cat([first, heads.slice(-1, rotated, headSize - rotated)], -1)
}

/** Attention over the cache, whose rows of these tokens are written first. `x` is normalised. */
const attention = (input: BlockInput, x: Operand): { readonly output: Tensor; readonly write: Tensor } => {
  const { cache, config, order, startPos, weights } = input
  const { headSize, heads, keyValueHeads } = config
  const tokens = x.values.dim(0)
  const { key, query, value } = projections(input, x)
  const rows = Cache.pack(config, cache, [turned(input, key, "attn_k_norm"), value])
  const { places } = input
  const ring = places === undefined ? Cache.ringIn(Number(cache.dim(0)), input.window) : undefined
  const first = ring === undefined ? startPos : startPos.mod(ring.positions)
  const write = Places.write(cache, rows, { first, places }).label("cache")
  // every cached position reads it
  const full = keepAlways(order, turned(input, query, "attn_q_norm").mul(config.attentionScale).label("query"))
  const grouped = full.reshape([tokens, keyValueHeads, headsPerKey(config), headSize])
  const written = after(cache, [write])
  const mixed = places !== undefined
    ? Places.attend(Cache.reader(config, 1), grouped, { cache: written, places, window: input.window })
    : input.isFew
    ? few(Cache.reader(config), grouped, written, { ring, startPos, window: input.window })
    : whole(Cache.reader(config), { ...input, ring }, grouped, written)
  const z = computed(mixed.reshape([tokens, heads * headSize]), input)
  return { output: affine(weights, z, "attn_output"), write }
}

/** What a half of the block adds to the stream: normalised, where there is a norm behind it. */
const added = (input: BlockInput, output: Tensor, role: string): Tensor =>
  input.config.traits.normsAfter ? norm(input, keep(input.order, output), role) : output

/** One block. */
export const block = (input: BlockInput): Decoder.BlockOutput => {
  const { config, order, weights, x } = input
  const { headSize, heads, traits } = config
  const { output, write } = attention(input, normedForFewRows(input, x, "attn_norm", heads * headSize))
  const middle = keep(order, x.add(added(input, output, "post_attention_norm")).label("ffn_inp"))
  const inner = ofTokens(normed(input, middle, traits.feedForwardNorm), input)
  const how = { ...input, gate: traits.gate }
  const ffn: { readonly output: Tensor; readonly chosen?: Tensor } = weights("ffn_gate_inp") === undefined
    ? { output: dense(how, inner, ["ffn_gate", "ffn_up", "ffn_down"]) }
    : mixture(how, config.experts!, inner)
  return { x: middle.add(added(input, ffn.output, "post_ffw_norm")).label("l_out"), write, chosen: ffn.chosen }
}
