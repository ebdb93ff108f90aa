/** One transformer block as a function of its input, its cache and its weights: the equations of DeepSeek-V2, section 2.1. */
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
import type { Config } from "./Config.ts"
import * as Heads from "./Heads.ts"

/** What a block computes on; its host input are cosines and sines, `[T, rotated / 2, 2]`. */
export interface BlockInput extends Decoder.BlockInput {
  readonly config: Config
  readonly epsilon: number
}

/** `[T, H (plain + rotated)]`, by way of a vector of low rank if the model has one. */
const queries = (input: BlockInput, x: Operand): Tensor => {
  if (input.config.queryRank === 0) return project(input, x, "attn_q")
  const low = project(input, x, "attn_q_a")
  return project(input, Norm.operand(input, low, "attn_q_a_norm"), "attn_q_b")
}

/** Attention over the cache, whose rows of these tokens are written first. `x` is normalised. */
const attended = (input: BlockInput, x: Operand): { readonly output: Tensor; readonly write: Tensor } => {
  const { cache, config, input: cosSin, places, startPos } = input
  const { heads, latent, plain, rotated, value } = config
  const tokens = x.values.dim(0)

  const kv = project(input, x, "attn_kv_a_mqa")
  const c = Norm.norm(input, kv.slice(-1, 0, latent), "attn_kv_a_norm")
  const key = rotate(kv.slice(-1, latent, rotated), cosSin)
  const rows = Nn.cat([c, key], -1).label("attn_kv_a_norm")
  const write = Places.write(cache, Cache.pack(config, cache, rows), { first: startPos, places }).label("cache")

  const q = queries(input, x).reshape([tokens, heads, plain + rotated])
  const position = rotate(q.slice(-1, plain, rotated), cosSin)
  const query = Nn.cat([q.slice(-1, 0, plain), position], -1)
  const mixed = attention(Heads.reader(input), input, asQuery(input, query), after(cache, [write]))
  return { output: linear(input, mixed.reshape([tokens, heads * value]), "attn_output"), write }
}

/** One block. */
export const block = (input: BlockInput): Decoder.BlockOutput => {
  const { config, x } = input
  const { output, write } = attended(input, Norm.operand(input, x, "attn_norm"))
  const middle = shared(input, x.add(output).label("ffn_inp"))
  const ffn = feedForward(input, config.experts, middle, "ffn_norm")
  return { x: middle.add(ffn.output).label("l_out"), write, chosen: ffn.chosen }
}
