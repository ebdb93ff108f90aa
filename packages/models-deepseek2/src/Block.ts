/** One transformer block as a function of its input, its cache and its weights. */
import * as DType from "@tg/core-uop/DType"
import * as Layout from "@tg/gguf/Layout"
import * as Nn from "@tg/tensor/Nn"
import { after, assign } from "@tg/tensor/Program"
import { iota, scalar, type Tensor, zeros } from "@tg/tensor/Tensor"
import * as Cache from "./Cache.ts"
import type { Config, ExpertConfig } from "./Config.ts"
import { attentionScale, rotate } from "./Rope.ts"
import type { Role } from "./Weights.ts"

/** A weight with the buffer of its planes. */
export interface Weight {
  readonly layout: Layout.Layout
  readonly words: Tensor
}

/** The weights of a block, found by role. */
export type Lookup = (role: Role) => Weight | undefined

/** What a block computes on. */
export interface BlockInput {
  readonly config: Config
  readonly weights: Lookup
  /** `[T, embedding]`. */
  readonly x: Tensor
  /** `[T, rotated / 2, 2]`. */
  readonly cosSin: Tensor
  readonly cache: Tensor
  /** Position of the first token, dtype `index`. */
  readonly startPos: Tensor
}

/** Scores of positions that must not be seen: finite, so that no infinity enters arithmetic. */
const hidden = -1e30
/** The reference's guard against a vanishing sum of expert weights. */
const leastWeightSum = 6.103515625e-5

const need = (weights: Lookup, role: Role): Weight => {
  const weight = weights(role)
  if (weight === undefined) throw new Error(`the block has no ${role}; Weights.find checks that it has`)
  return weight
}

/** A vector, or a small matrix, as it is. */
const plain = ({ layout, words }: Weight): Tensor => Layout.dequantise(layout, words)

/** `x` times a weight whose rows are outputs. */
export const product = (x: Tensor, { layout, words }: Weight): Tensor => {
  const { rowRank, values } = Layout.decode(layout, words)
  return Nn.contract(x, values, rowRank)
}

/** Keys and values are made from the cached latent; both up-projections are absorbed into query and output. */
const absorbed = ({ config, weights }: BlockInput) => {
  const { heads, latent, plain: n, value } = config
  const joint = weights("attn_kv_b")
  if (joint === undefined || weights("attn_k_b") !== undefined) {
    const keys = need(weights, "attn_k_b")
    const values = need(weights, "attn_v_b")
    return {
      query: (q: Tensor) => product(q, keys).label("attn_k_b"),
      output: (z: Tensor) => product(z, values).label("attn_v_b")
    }
  }
  // one matrix: per head n key rows, then the value rows
  const { rowRank, values } = Layout.decode(joint.layout, joint.words)
  const perHead = values.reshape([heads, n + value, ...values.shape.slice(values.rank - rowRank)])
  const keys = perHead.slice(1, 0, n).reshape([heads, n, latent]).transpose()
  return {
    query: (q: Tensor) => Nn.contract(q, keys, 1).label("attn_kv_b"),
    output: (z: Tensor) => Nn.contract(z, perHead.slice(1, n, value), rowRank).label("attn_kv_b")
  }
}

const queries = ({ config, weights }: BlockInput, x: Tensor): Tensor => {
  if (config.queryRank === 0) return product(x, need(weights, "attn_q")).label("attn_q")
  const low = product(x, need(weights, "attn_q_a")).label("attn_q_a")
  const normed = Nn.rmsNorm(low, plain(need(weights, "attn_q_a_norm")), config.epsilon).label("attn_q_a_norm")
  return product(normed, need(weights, "attn_q_b")).label("attn_q_b")
}

/** Attention over the cache, whose rows of these tokens are written first. `x` is normalised. */
const attention = (input: BlockInput, x: Tensor): { readonly output: Tensor; readonly write: Tensor } => {
  const { cache, config, cosSin, startPos, weights } = input
  const { heads, latent, plain: n, rotated, value } = config
  const tokens = x.dim(0)
  const { output, query } = absorbed(input)

  const kv = product(x, need(weights, "attn_kv_a_mqa")).label("attn_kv_a_mqa")
  const c = Nn.rmsNorm(kv.slice(-1, 0, latent), plain(need(weights, "attn_kv_a_norm")), config.epsilon)
  const key = rotate(kv.slice(-1, latent, rotated), cosSin)
  const rows = Nn.cat([c, key], -1).label("attn_kv_a_norm")
  const write = assign(cache.slice(0, startPos, tokens), Cache.pack(config, cache, rows)).label("cache")

  const q = queries(input, x).reshape([tokens, heads, n + rotated])
  const position = rotate(q.slice(-1, n, rotated), cosSin)
  // every cached position reads it
  const full = Nn.cat([query(q.slice(-1, 0, n)), position], -1).mul(attentionScale(config)).contiguous().label("query")

  const written = after(cache, [write])
  const z = tokens === 1 ? split(config, full, written, startPos) : whole(config, full, written, startPos)
  const mixed = output(z).reshape([tokens, heads * value])
  return { output: product(mixed, need(weights, "attn_output")).label("attn_output"), write }
}

/** Attention of several tokens, `query [T, H, K]`, over all rows up to theirs: `[T, H, latent]`. */
const whole = (config: Config, query: Tensor, cache: Tensor, startPos: Tensor): Tensor => {
  const seen = cache.slice(0, 0, startPos.add(scalar(query.arena, query.dim(0))))
  const scores = Cache.scores(config, query, seen)
  return Cache.mix(config, Nn.softmax(causal(scores, startPos)).label("attn_softmax"), seen).label("attn_mix")
}

/**
 * Attention of one token, `query [1, H, K]`: each piece of the cache gives the mix of its rows, weighed relative to its
 * own largest score, with that score and the sum of the weights; combined, they are the softmax over all rows
 * (FlashDecoding).
 */
const split = (config: Config, query: Tensor, cache: Tensor, startPos: Tensor): Tensor => {
  const { arena } = query
  const { latent } = config
  const { piece } = Cache
  const pieces = startPos.add(piece).floordiv(piece)
  const rows = cache.reshape([Number(cache.dim(0)) / piece, piece, cache.dim(1)]).slice(0, 0, pieces)
  const position = iota(arena, rows.dim(0)).mul(piece).unsqueeze(1).add(iota(arena, piece))
  const scores = position.le(startPos).where(Cache.scores(config, query, rows), hidden)
  const most = scores.max({ axis: -1, keepDims: true })
  const weights = scores.sub(most).exp()
  const parts = [Cache.mix(config, weights, rows), most, weights.sum({ axis: -1, keepDims: true })]
  // four columns, so that rows of the result stay aligned
  const record = Nn.cat([...parts, zeros(arena, [...most.shape.slice(0, -1), 2])], -1).contiguous().label("attn_split")
  const column = (at: number): Tensor => record.slice(-1, latent + at, 1)
  const scale = column(0).sub(column(0).max({ axis: 2, keepDims: true })).exp()
  return record.slice(-1, 0, latent).mul(scale).sum(2).div(column(1).mul(scale).sum(2)).label("attn_mix")
}

/** Hides position u from token t unless u <= startPos + t. */
const causal = (scores: Tensor, startPos: Tensor): Tensor => {
  const tokens = scores.dim(0)
  const own = iota(scores.arena, tokens).add(startPos).reshape([tokens, 1, 1])
  return iota(scores.arena, scores.dim(-1)).le(own).where(scores, hidden)
}

const gated = (gate: Tensor, up: Tensor): Tensor => gate.silu().mul(up)

const dense = (weights: Lookup, x: Tensor, names: readonly [gate: Role, up: Role, down: Role]): Tensor => {
  const [gate, up, down] = names
  const inner = gated(product(x, need(weights, gate)).label(gate), product(x, need(weights, up)).label(up))
  return product(inner, need(weights, down)).label(down)
}

/** Scores of experts outside of the best groups become too small to be chosen. */
const withinGroups = (experts: ExpertConfig, scores: Tensor): Tensor => {
  const { count, groups, groupsUsed } = experts
  if (groups === 1 || groupsUsed === groups) return scores
  const size = count / groups
  const tokens = scores.dim(0)
  const grouped = scores.reshape([tokens, groups, size])
  const strength = Nn.topK(grouped, Math.min(2, size)).values.sum(-1)
  const best = Nn.topK(strength, groupsUsed).indices
  const kept = oneHot(best, groups).cast(DType.u32).sum(1).ne(0)
  return kept.unsqueeze(-1).where(grouped, hidden).reshape(scores.shape)
}

/** `[..]` indices to `[.., n]`: true at the index. */
const oneHot = (index: Tensor, n: number): Tensor => index.unsqueeze(-1).eq(iota(index.arena, n).cast(index.dtype))

/** `[T, n]` values and `[T, k]` indices to the `[T, k]` values there. A single row is indexed; of several, each row's own. */
const pick = (x: Tensor, index: Tensor): Tensor => {
  const n = Number(x.dim(-1))
  return x.dim(0) === 1
    ? x.reshape([n]).gather(index)
    : oneHot(index, n).where(x.unsqueeze(1), 0).sum(-1)
}

/** Which experts each token uses, and with what weight: `[T, used]` both. */
export const route = (
  experts: ExpertConfig,
  logits: Tensor,
  bias: Tensor | undefined
): { readonly chosen: Tensor; readonly weights: Tensor } => {
  const p = experts.gating === "softmax" ? Nn.softmax(logits) : logits.sigmoid()
  const selection = bias === undefined ? p : p.add(bias)
  const chosen = Nn.topK(withinGroups(experts, selection), experts.used).indices.label("ffn_moe_topk")
  // the bias selects, it never weighs
  const own = pick(p, chosen)
  const normed = experts.normalise
    ? own.div(own.sum({ axis: -1, keepDims: true }).maximum(leastWeightSum))
    : own
  return { chosen, weights: (experts.scale === 1 ? normed : normed.mul(experts.scale)).label("ffn_moe_weights") }
}

/** `x [T, 1 or used, K]` times the chosen experts' matrices, indexed inside of the product: `[T, used, rows]`. */
const expertProduct = (x: Tensor, weight: Weight, chosen: Tensor, rows?: readonly [number, number]): Tensor => {
  const { rowRank, values } = Layout.decode(weight.layout, weight.words, chosen)
  const part = rows === undefined ? values : values.slice(values.rank - rowRank - 1, rows[0], rows[1])
  return Nn.contract(x, part, rowRank)
}

/** `x [T, used, K]` times the chosen experts' matrices, summed over the experts in the same loop: `[T, rows]`. */
const expertSum = (x: Tensor, weight: Weight, chosen: Tensor): Tensor => {
  const { rowRank, values } = Layout.decode(weight.layout, weight.words, chosen)
  const row = values.shape.slice(values.rank - rowRank)
  return x.reshape([...x.shape.slice(0, -1), 1, ...row]).mul(values).sum({
    axis: [1, ...row.map((_, i) => i - rowRank)]
  })
}

const mixture = (weights: Lookup, experts: ExpertConfig, x: Tensor): Tensor => {
  const logits = product(x, need(weights, "ffn_gate_inp")).label("ffn_gate_inp")
  const bias = weights("exp_probs_b")
  const routed = route(experts, logits, bias === undefined ? undefined : plain(bias))
  const own = x.unsqueeze(1)
  const fused = weights("ffn_gate_up_exps")
  const { width } = experts
  const gate = fused === undefined
    ? expertProduct(own, need(weights, "ffn_gate_exps"), routed.chosen)
    : expertProduct(own, fused, routed.chosen, [0, width])
  const up = fused === undefined
    ? expertProduct(own, need(weights, "ffn_up_exps"), routed.chosen)
    : expertProduct(own, fused, routed.chosen, [width, width])
  // the experts' weights go into the activations, where the sum over experts is linear
  const inner = gated(gate.label("ffn_gate_exps"), up.label("ffn_up_exps")).mul(routed.weights.unsqueeze(-1))
  const mixed = expertSum(inner, need(weights, "ffn_down_exps"), routed.chosen).label("ffn_down_exps")
  return experts.shared === 0
    ? mixed
    : mixed.add(dense(weights, x, ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"]))
}

/** The block's output `[T, embedding]` and its write to the cache. */
export const block = (input: BlockInput): { readonly x: Tensor; readonly write: Tensor } => {
  const { config, weights, x } = input
  const normed = Nn.rmsNorm(x, plain(need(weights, "attn_norm")), config.epsilon).label("attn_norm")
  const { output, write } = attention(input, normed)
  // the projection adds the residual; what follows reads the sum
  const middle = x.add(output).contiguous().label("ffn_inp")
  const inner = Nn.rmsNorm(middle, plain(need(weights, "ffn_norm")), config.epsilon).label("ffn_norm")
  const ffn = weights("ffn_gate_inp") === undefined
    ? dense(weights, inner, ["ffn_gate", "ffn_up", "ffn_down"])
    : mixture(weights, config.experts!, inner)
  return { x: middle.add(ffn).label("l_out"), write }
}
