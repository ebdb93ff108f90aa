/** One transformer block as a function of its input, its cache and its weights. */
import * as Layout from "@tg/gguf/Layout"
import { few, whole } from "@tg/model-parts/Attention"
import type * as Decoder from "@tg/model-parts/Decoder"
import { dense, mixture } from "@tg/model-parts/FeedForward"
import { norm, normed, normedForFewRows } from "@tg/model-parts/Norm"
import { keep, keepAlways } from "@tg/model-parts/Order"
import * as Places from "@tg/model-parts/Places"
import { computed, need, ofFewRows, ofTokens, type Operand, product } from "@tg/model-parts/Product"
import { rotate } from "@tg/model-parts/Rotary"
import * as Nn from "@tg/tensor/Nn"
import { after } from "@tg/tensor/Program"
import type { Tensor } from "@tg/tensor/Tensor"
import * as Cache from "./Cache.ts"
import * as Heads from "./Heads.ts"
import type { Config } from "./Config.ts"
import { attentionScale } from "./Rope.ts"

/** What a block computes on; its host input are cosines and sines, `[T, rotated / 2, 2]`. */
export interface BlockInput extends Decoder.BlockInput {
  readonly config: Config
  readonly epsilon: number
}

/** Keys and values are made from the cached latent; both up-projections are absorbed into query and output. */
const absorbed = (input: BlockInput) => {
  const { config, weights } = input
  const { heads, latent, plain: n, value } = config
  const joint = weights("attn_kv_b")
  if (joint === undefined || weights("attn_k_b") !== undefined) {
    const keys = need(weights, "attn_k_b")
    const values = need(weights, "attn_v_b")
    return {
      query: (q: Tensor) => product(ofFewRows(q, input), keys).label("attn_k_b"),
      output: (z: Tensor) => product(ofFewRows(z, input), values).label("attn_v_b")
    }
  }
  // one matrix: per head n key rows, then the value rows
  const perHead = (x: Tensor, rowRank: number): Tensor =>
    x.reshape([heads, n + value, ...x.shape.slice(x.rank - rowRank)])
  const { rowRank, values } = Layout.decode(joint.layout, joint.words)
  // sums over rows: a scale belongs to a row, so these are no products of bytes
  const keys = perHead(values, rowRank).slice(1, 0, n).reshape([heads, n, latent]).transpose()
  const valueRows = (x: Tensor, rowRank: number): Tensor => perHead(x, rowRank).slice(1, n, value)
  return {
    query: (q: Tensor) => Nn.contract(q, keys, 1).label("attn_kv_b"),
    output: (z: Tensor) => product(ofFewRows(z, input), joint, { view: valueRows }).label("attn_kv_b")
  }
}

/** Rows of the query projection. */
const queryRows = ({ heads, plain: n, rotated }: Config): number => heads * (n + rotated)

const queries = (input: BlockInput, x: Operand): Tensor => {
  const { config, order, weights } = input
  if (config.queryRank === 0) return product(x, need(weights, "attn_q")).label("attn_q")
  const low = keep(order, product(x, need(weights, "attn_q_a")).label("attn_q_a"))
  const inner = normedForFewRows(input, low, "attn_q_a_norm", queryRows(config))
  return product(inner, need(weights, "attn_q_b")).label("attn_q_b")
}

/** Attention over the cache, whose rows of these tokens are written first. `x` is normalised. */
const attention = (input: BlockInput, x: Operand): { readonly output: Tensor; readonly write: Tensor } => {
  const { cache, config, input: cosSin, order, startPos, weights } = input
  const { heads, latent, plain: n, rotated, value } = config
  const tokens = x.values.dim(0)
  const { output, query } = absorbed(input)

  const kv = keep(order, product(x, need(weights, "attn_kv_a_mqa")).label("attn_kv_a_mqa"))
  const c = norm(input, kv.slice(-1, 0, latent), "attn_kv_a_norm")
  const key = rotate(kv.slice(-1, latent, rotated), cosSin)
  const rows = Nn.cat([c, key], -1).label("attn_kv_a_norm")
  const write = Places.write(cache, Cache.pack(config, cache, rows), { first: startPos, places: input.places })
    .label("cache")

  const q = keep(order, queries(input, x)).reshape([tokens, heads, n + rotated])
  const position = rotate(q.slice(-1, n, rotated), cosSin)
  if (input.batch?.attend === "heads") {
    const own = keepAlways(order, Nn.cat([q.slice(-1, 0, n), position], -1).mul(attentionScale(config)).label("query"))
    const mixed = whole(Heads.reader(input), input, own, after(cache, [write])).reshape([tokens, heads * value])
    return { output: product(computed(mixed, input), need(weights, "attn_output")).label("attn_output"), write }
  }
  const latents = keep(order, query(q.slice(-1, 0, n)))
  // every cached position reads it
  const full = keepAlways(order, Nn.cat([latents, position], -1).mul(attentionScale(config)).label("query"))

  const written = after(cache, [write])
  const z = input.places !== undefined
    ? Places.attend(Cache.reader(config, 1), full, { cache: written, places: input.places })
    : input.isFew
    ? few(Cache.reader(config), full, written, { startPos })
    : whole(Cache.reader(config), input, full, written)
  const mixed = computed(output(z).reshape([tokens, heads * value]), input)
  return { output: product(mixed, need(weights, "attn_output")).label("attn_output"), write }
}

/** One block. */
export const block = (input: BlockInput): Decoder.BlockOutput => {
  const { config, order, weights, x } = input
  const { output, write } = attention(
    input,
    normedForFewRows(input, x, "attn_norm", config.queryRank || queryRows(config))
  )
  const middle = keep(order, x.add(output).label("ffn_inp"))
  const inner = ofTokens(normed(input, middle, "ffn_norm"), input)
  const ffn: { readonly output: Tensor; readonly chosen?: Tensor } = weights("ffn_gate_inp") === undefined
    ? { output: dense(input, inner, ["ffn_gate", "ffn_up", "ffn_down"]) }
    : mixture(input, config.experts!, inner)
  return { x: middle.add(ffn.output).label("l_out"), write, chosen: ffn.chosen }
}
