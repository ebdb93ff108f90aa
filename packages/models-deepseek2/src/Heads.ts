/** Keys and values of each head, made from the latents of all positions: as the paper writes them. */
import * as Layout from "@tg/gguf/Layout"
import type { Reader } from "@tg/model-parts/Attention"
import { type Activation, computed, forExperts, need, product, type Weight } from "@tg/model-parts/Product"
import { shared } from "@tg/model-parts/Schedule"
import * as Nn from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
import type { BlockInput } from "./Block.ts"
import * as Cache from "./Cache.ts"
import type { Form } from "./Form.ts"

/** Attention to each head's own keys and values. */
export const form = (input: BlockInput): Form => ({
  query: (q) => q,
  reader: () => reader(input),
  output: (mixed) => mixed
})

/** Reads the cache as keys `[S, H, plain + rotated]` and values `[S, H, value]`. */
const reader = (input: BlockInput): Reader => ({
  scores: (query, stored) => query.unsqueeze(2).mul(keys(input, stored).permute([1, 0, 2])).sum(-1),
  mix: (weights, stored) => weights.unsqueeze(2).mul(values(input, stored).permute([1, 2, 0])).sum(-1),
  width: input.config.value
})

const keys = (input: BlockInput, stored: Tensor): Tensor => {
  const { config } = input
  const { latents, positions } = rows(input, stored)
  const own = shared(input, plainKeys(input, latents).label("attn_keys"))
  const rotated = positions.unsqueeze(1).expand([stored.dim(0), config.heads, config.rotated])
  return shared(input, Nn.cat([own, rotated], -1).label("attn_keys"))
}

/** The part without position, `[S, H, plain]`. */
const plainKeys = (input: BlockInput, latents: Activation): Tensor => {
  const { config, weights } = input
  const separate = weights("attn_k_b")
  return separate === undefined
    ? product(forExperts(latents), need(weights, "attn_kv_b"), { view: rowsOfHeads(input, 0, config.plain) })
    : Nn.contract(latents.values.unsqueeze(1), transposed(separate), 1)
}

const values = (input: BlockInput, stored: Tensor): Tensor => {
  const { config: { plain, value }, weights } = input
  const latents = forExperts(rows(input, stored).latents)
  const separate = weights("attn_v_b")
  const own = separate === undefined
    ? product(latents, need(weights, "attn_kv_b"), { view: rowsOfHeads(input, plain, value) })
    : product(latents, separate)
  return shared(input, own.label("attn_values"))
}

/** What the cache holds: latents as the operand of products, and rotated keys. */
const rows = (input: BlockInput, stored: Tensor) => {
  const { latents, positions } = Cache.parts(input.config, stored)
  return { latents: computed(latents, input), positions }
}

/** Some rows of each head of the joint matrix. */
const rowsOfHeads =
  ({ config: { heads, plain, value } }: BlockInput, from: number, size: number) =>
  (x: Tensor, rowRank: number): Tensor =>
    x.reshape([heads, plain + value, ...x.shape.slice(x.rank - rowRank)]).slice(1, from, size)

/** Weights `[H, latent, plain]` with rows of latents, stored as floats: a scale belongs to a row, and the sum runs across rows. */
const transposed = ({ layout, words }: Weight): Tensor => {
  const { rowRank, values } = Layout.decode(layout, words)
  const lead = values.shape.slice(0, values.rank - rowRank)
  const size = values.shape.slice(values.rank - rowRank).reduce<number>((n, d) => n * Number(d), 1)
  return values.reshape([...lead, size]).transpose().contiguous().label("attn_k_b")
}
