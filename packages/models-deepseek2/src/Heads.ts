/** Keys and values of each head, made from the latents of all positions: as the paper writes them. */
import type { SpreadRows } from "@tg/gguf/Layout"
import type { Reader, RowReader } from "@tg/model-parts/Attention"
import { inEquation, need } from "@tg/model-parts/Product"
import { ones } from "@tg/model-parts/Halves"
import * as Nn from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
import type { BlockInput } from "./Block.ts"
import * as Cache from "./Cache.ts"
import { attentionScale } from "./Rope.ts"

/** Attention to each head's own keys and values. */
export const reader = (input: BlockInput): Reader => ({ ...readerOf(input, 0), each: readerOf(input, 1) })

/** Reads rows `[B.., S, words]` for queries `[B.., A.., H, K]`; B are the first `shared` axes. */
const readerOf = (input: BlockInput, shared: 0 | 1): RowReader => ({
  scores: (query, stored) =>
    query.unsqueeze(-2).mul(ofHeads(keys(input, stored), query.rank, shared)).sum(-1).mul(attentionScale(input.config))
      .label("attn_scores"),
  mix: (weights, stored) => weights.unsqueeze(-1).mul(ofHeads(values(input, stored), weights.rank, shared)).sum(-2)
})

/** Values `[B.., S, H, n]` as queries of so many axes meet them, `[B.., 1.., H, S, n]`. */
const ofHeads = (x: Tensor, rank: number, shared: number): Tensor => {
  const { shape } = x.transpose(-3, -2)
  return x.transpose(-3, -2).reshape([...shape.slice(0, shared), ...ones(rank - shared - 2), ...shape.slice(shared)])
}

/** k = [W_uk c | k_rope], `[B.., S, H, plain + rotated]`. */
const keys = (input: BlockInput, stored: Tensor): Tensor => {
  const { heads, rotated } = input.config
  const { latents, positions } = Cache.parts(input.config, stored)
  const common = positions.unsqueeze(-2).expand([...positions.shape.slice(0, -1), heads, rotated])
  return Nn.cat([plainKeys(input, latents.unsqueeze(-2)), common], -1).label("attn_keys")
}

/** W_uk c: the part without position, `[B.., S, H, plain]`. */
const plainKeys = (input: BlockInput, latents: Tensor): Tensor => {
  const { config: { heads, latent, plain }, weights } = input
  const separate = weights("attn_k_b")
  if (separate === undefined) {
    return times(latents, inEquation(input, need(weights, "attn_kv_b"), rowsOfHeads(input, 0, plain)))
  }
  // stored `[H, latent, plain]`
  const { values } = inEquation(input, separate)
  return Nn.contract(latents, values.reshape([heads, latent, plain]).transpose(), 1)
}

/** v = W_uv c, `[B.., S, H, value]`. */
const values = (input: BlockInput, stored: Tensor): Tensor => {
  const { config: { plain, value }, weights } = input
  const { latents } = Cache.parts(input.config, stored)
  const separate = weights("attn_v_b")
  const own = separate === undefined
    ? inEquation(input, need(weights, "attn_kv_b"), rowsOfHeads(input, plain, value))
    : inEquation(input, separate)
  return times(latents.unsqueeze(-2), own).label("attn_values")
}

const times = (x: Tensor, { rowRank, values }: SpreadRows): Tensor => Nn.contract(x, values, rowRank)

/** Some rows of each head of the joint matrix. */
const rowsOfHeads =
  ({ config: { heads, plain, value } }: BlockInput, from: number, size: number) =>
  (x: Tensor, rowRank: number): Tensor =>
    x.reshape([heads, plain + value, ...x.shape.slice(x.rank - rowRank)]).slice(1, from, size)
