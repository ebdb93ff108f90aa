/** One transformer block as a function of its input, its cache and its weights. */
import * as DType from "@tg/core-uop/DType"
import * as Layout from "@tg/gguf/Layout"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import { after, assign } from "@tg/tensor/Program"
import { iota, scalar, type Tensor, zeros } from "@tg/tensor/Tensor"
import * as Cache from "./Cache.ts"
import type { Config, ExpertConfig } from "./Config.ts"
import { fromPlaces, keepPlaces, places, toPlaces } from "./Grouped.ts"
import { keep, keepAlways, type Order } from "./Order.ts"
import { attentionScale, rotate } from "./Rope.ts"
import type { Role } from "./Weights.ts"

/** A weight with the buffer of its planes. */
export interface Weight {
  readonly layout: Layout.Layout
  readonly words: Tensor
}

/** The weights of a block, found by role. */
export type Lookup = (role: Role) => Weight | undefined

/**
 * How products with quantised weights read their other operand: as it is, or rounded to 8 bits per 32 values. `int8`
 * launches nothing to round what only a few rows read: that costs more than it saves. `int8-all` does, where launches cost
 * next to nothing.
 */
export type Activations = "float" | "int8" | "int8-all"

/** The operand of products: as it is and, where products may use it, quantised. */
interface Operand {
  readonly values: Tensor
  readonly int8: Tensor | Int8.Blocks | undefined
  /** What results of products with `int8` are multiplied with, if anything: `[T, 1]`. */
  readonly factor?: Tensor
}

/** One whose quants are stored, for all products. */
interface Activation extends Operand {
  readonly int8: Tensor | undefined
}

/** What a block computes on. */
export interface BlockInput {
  readonly activations: Activations
  readonly config: Config
  readonly weights: Lookup
  /** `[T, embedding]`. */
  readonly x: Tensor
  /** `[T, rotated / 2, 2]`. */
  readonly cosSin: Tensor
  readonly cache: Tensor
  /** Position of the first token, dtype `index`. */
  readonly startPos: Tensor
  readonly order: Order
  /** In the order of features. */
  readonly batch?: Batch | undefined
}

/** What a step of many tokens has to know beside them; symbolic integers. */
export interface Batch {
  /** T / `Order.tileTokens`. */
  readonly tiles: Tensor
  /** Tokens that count: the last tile may not be full. */
  readonly count: Tensor
  /** Positions of the cache to look at: startPos + T, rounded up to whole pieces; what is behind a token is hidden. */
  readonly keys: Tensor
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

const hasBlocks = (x: Tensor): boolean => Number(x.dim(-1)) % Int8.blockValues === 0

/** `x [.., K]` as products of this policy read it. All of them share what is quantised, which is stored. */
export const activation = (
  x: Tensor,
  activations: Activations,
  stored: (records: Tensor) => Tensor = (records) => records.contiguous()
): Activation => ({
  values: x,
  int8: activations !== "float" && hasBlocks(x) ? stored(Int8.quantise(x).label("int8")) : undefined
})

/** The same of one value per token, in its order. */
const ofTokens = (x: Tensor, { activations, order }: Pick<BlockInput, "activations" | "order">): Activation =>
  activation(x, activations, (records) => keepAlways(order, records))

/** What a product computed, as the operand of another one. */
const computed = (x: Tensor, input: BlockInput): Activation => ofTokens(keep(input.order, x), input)

/** `x` rounded by whoever multiplies it, instead of by a launch that takes longer than it saves. */
const inPlace = (x: Tensor): Int8.Blocks => {
  const { quants, scale, sums } = Int8.blocks(x)
  return { quants: quants.label("int8"), scale: scale.label("int8"), sums: (parts) => sums(parts).label("int8") }
}

const float = (values: Tensor): Operand => ({ values, int8: undefined })

/** The operand of products with few rows. */
const ofFewRows = (x: Tensor, input: BlockInput): Operand =>
  input.activations === "int8-all" ? ofTokens(x, input) : float(x)

/** One activation for several experts: `[T, K]` to `[T, 1, K]`. */
const forExperts = ({ int8, values }: Activation): Activation => ({
  values: values.unsqueeze(1),
  int8: int8?.unsqueeze(1)
})

/** Which part of a weight to multiply with. */
interface Part {
  /** The experts, by number. */
  readonly select?: Tensor | undefined
  /** Another view of the rows. It gets a tensor and how many of its last axes are a row. */
  readonly view?: (x: Tensor, rowRank: number) => Tensor
}

/** Whether the product is one of bytes. */
const isInt8 = <A extends Operand>(x: A, layout: Layout.Layout): x is A & { readonly int8: NonNullable<A["int8"]> } =>
  x.int8 !== undefined && Layout.isInt8(layout)

/** `x` times a weight whose rows are outputs, or times a part of it. */
export const product = (x: Operand, { layout, words }: Weight, { select, view }: Part = {}): Tensor => {
  if (isInt8(x, layout)) {
    const rows = Layout.decodeInt8(layout, words, select)
    const y = Int8.contract(x.int8, view === undefined ? rows : Int8.mapRows(rows, view))
    return x.factor === undefined ? y : y.mul(x.factor)
  }
  const { rowRank, values } = Layout.decode(layout, words, select)
  return Nn.contract(x.values, view === undefined ? values : view(values, rowRank), rowRank)
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

/** The norm of each token; its factor is computed once where it is worth storing. */
const norm = ({ config, order, weights }: BlockInput, x: Tensor, role: Role): Tensor =>
  x.mul(keep(order, Nn.rmsScale(x, config.epsilon).label(role))).mul(plain(need(weights, role))).label(role)

/** The norm of each token, for several products. */
const normed = (input: BlockInput, x: Tensor, role: Role): Tensor => keep(input.order, norm(input, x, role))

/**
 * Whether a product with so many rows of K values is faster if each of its workgroups rounds `x` for itself. On an H200
 * 768 rows of 2048 take no longer with floats, 1536 rows take 5.1 us instead of 5.4, 3072 rows 5.7 instead of 7.1.
 */
const roundsItself = ({ activations }: BlockInput, x: Tensor, rows: number): boolean =>
  activations === "int8" && hasBlocks(x) && 2 * rows >= Number(x.dim(-1))

/**
 * The norm of each token, for a product with `rows` rows. If that rounds its operand, the factor of the norm scales the
 * results, so that rounding need not wait for it.
 */
const normedForFewRows = (input: BlockInput, x: Tensor, role: Role, rows: number): Operand => {
  const { config, weights } = input
  const values = normed(input, x, role)
  if (!roundsItself(input, x, rows)) return ofFewRows(values, input)
  // the squares of a block are added up where its quants are made
  const blocks = x.reshape([...x.shape.slice(0, -1), Number(x.dim(-1)) / Int8.blockValues, Int8.blockValues])
  const means = blocks.mul(blocks).mean(-1).label("int8")
  return {
    values,
    int8: inPlace(x.mul(plain(need(weights, role)))),
    factor: means.mean({ axis: -1, keepDims: true }).add(config.epsilon).rsqrt().label(role)
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
  const { cache, config, cosSin, order, startPos, weights } = input
  const { heads, latent, plain: n, rotated, value } = config
  const tokens = x.values.dim(0)
  const { output, query } = absorbed(input)

  const kv = keep(order, product(x, need(weights, "attn_kv_a_mqa")).label("attn_kv_a_mqa"))
  const c = norm(input, kv.slice(-1, 0, latent), "attn_kv_a_norm")
  const key = rotate(kv.slice(-1, latent, rotated), cosSin)
  const rows = Nn.cat([c, key], -1).label("attn_kv_a_norm")
  const write = assign(cache.slice(0, startPos, tokens), Cache.pack(config, cache, rows)).label("cache")

  const q = keep(order, queries(input, x)).reshape([tokens, heads, n + rotated])
  const position = rotate(q.slice(-1, n, rotated), cosSin)
  const latents = keep(order, query(q.slice(-1, 0, n)))
  // every cached position reads it
  const full = keepAlways(order, Nn.cat([latents, position], -1).mul(attentionScale(config)).label("query"))

  const written = after(cache, [write])
  const z = tokens === 1 ? split(config, full, written, startPos) : whole(input, full, written)
  const mixed = computed(output(z).reshape([tokens, heads * value]), input)
  return { output: product(mixed, need(weights, "attn_output")).label("attn_output"), write }
}

/** Attention of several tokens, `query [T, H, K]`, over all rows up to theirs: `[T, H, latent]`. */
const whole = ({ batch, config, order, startPos }: BlockInput, query: Tensor, cache: Tensor): Tensor => {
  const seen = cache.slice(0, 0, batch?.keys ?? startPos.add(scalar(query.arena, query.dim(0))))
  const scores = keep(order, causal(Cache.scores(config, query, seen), startPos))
  return keep(order, Cache.mix(config, softmax(order, scores), seen).label("attn_mix"))
}

/** Over the positions, `[T, H, S]`. */
const softmax = (order: Order, scores: Tensor): Tensor => {
  const e = scores.sub(keep(order, scores.max({ axis: -1, keepDims: true }))).exp()
  return keep(order, e.div(keep(order, e.sum({ axis: -1, keepDims: true }))).label("attn_softmax"))
}

/**
 * Heads that read a piece of the cache together. In a short context there are so few pieces that each head is better off
 * alone; in a long one, reading the cache again for each head takes longest. On an H200, 20 heads take 8 us alone behind
 * 500 positions and 26 behind 4000, four together 11 and 20.
 */
const headsTogether = (heads: number, positions: number): number =>
  positions <= shortContext ? 1 : [4, 2].find((n) => heads % n === 0) ?? 1
/** Rows of a cache for 4096 positions, with the end of the last tile of a prompt. */
const shortContext = 4096 + Cache.piece

/**
 * Attention of one token, `query [1, H, K]`: each piece of the cache gives the attention over its rows, with the logarithm
 * of the sum of its exponentials; weighed by these sums, the pieces are the attention over all rows (FlashDecoding).
 */
const split = (config: Config, query: Tensor, cache: Tensor, startPos: Tensor): Tensor => {
  const { arena } = query
  const { heads, latent } = config
  const { piece } = Cache
  const together = headsTogether(heads, Number(cache.dim(0)))
  const grouped = query.reshape([heads / together, together, query.dim(2)])
  const pieces = startPos.add(piece).floordiv(piece)
  const rows = cache.reshape([Number(cache.dim(0)) / piece, piece, cache.dim(1)]).slice(0, 0, pieces)
  const position = iota(arena, rows.dim(0)).mul(piece).unsqueeze(1).add(iota(arena, piece))
  const scores = position.le(startPos).where(Cache.scores(config, grouped, rows), hidden)
  const most = scores.max({ axis: -1, keepDims: true })
  const weights = scores.sub(most).exp()
  const sum = weights.sum({ axis: -1, keepDims: true })
  const mix = Cache.mix(config, weights, rows).div(sum)
  // eight columns more, of which one counts: as many as a group of values in the cache
  const rest = zeros(arena, [...most.shape.slice(0, -1), 7])
  const record = Nn.cat([mix, most.add(sum.log()), rest], -1).contiguous().label("attn_split")
  const logSum = record.slice(-1, latent, 1)
  const scale = logSum.sub(logSum.max({ axis: 2, keepDims: true })).exp()
  return record.slice(-1, 0, latent).mul(scale).sum(2).div(scale.sum(2)).label("attn_mix")
    .reshape([1, heads, latent])
}

/** Hides position u from token t unless u <= startPos + t. */
const causal = (scores: Tensor, startPos: Tensor): Tensor => {
  const tokens = scores.dim(0)
  const own = iota(scores.arena, tokens).add(startPos).reshape([tokens, 1, 1])
  return iota(scores.arena, scores.dim(-1)).le(own).where(scores, hidden)
}

const gated = (gate: Tensor, up: Tensor): Tensor => gate.silu().mul(up)

const dense = (
  input: BlockInput,
  x: Activation,
  [gate, up, down]: readonly [gate: Role, up: Role, down: Role]
): Tensor => {
  const { weights } = input
  const inner = gated(product(x, need(weights, gate)).label(gate), product(x, need(weights, up)).label(up))
  return product(computed(inner, input), need(weights, down)).label(down)
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
export interface Routed {
  readonly chosen: Tensor
  readonly weights: Tensor
}

/** The router of a mixture. `stored` is what becomes of the choice. */
export const route = (
  experts: ExpertConfig,
  logits: Tensor,
  bias: Tensor | undefined,
  stored = (chosen: Tensor): Tensor => chosen
): Routed => {
  const p = experts.gating === "softmax" ? Nn.softmax(logits) : logits.sigmoid()
  const selection = bias === undefined ? p : p.add(bias)
  const chosen = stored(Nn.topK(withinGroups(experts, selection), experts.used).indices.label("ffn_moe_topk"))
  // the bias selects, it never weighs
  const own = pick(p, chosen)
  const normed = experts.normalise
    ? own.div(own.sum({ axis: -1, keepDims: true }).maximum(leastWeightSum))
    : own
  return { chosen, weights: (experts.scale === 1 ? normed : normed.mul(experts.scale)).label("ffn_moe_weights") }
}

/** The output of the experts, and who they were: `[T, used]`. */
interface Mixture {
  readonly output: Tensor
  readonly chosen: Tensor
}

/** `x [T, used, K]` times the chosen experts' matrices, summed over the experts in the same loop: `[T, rows]`. */
const expertSum = (x: Activation, { layout, words }: Weight, chosen: Tensor): Tensor => {
  if (isInt8(x, layout)) return Int8.contract(x.int8, Layout.decodeInt8(layout, words, chosen), [1])
  const { rowRank, values } = Layout.decode(layout, words, chosen)
  const row = values.shape.slice(values.rank - rowRank)
  return x.values.reshape([...x.values.shape.slice(0, -1), 1, ...row]).mul(values).sum({
    axis: [1, ...row.map((_, i) => i - rowRank)]
  })
}

/** The first half of the experts of `select`: what their down projections take. */
const innerOf = (weights: Lookup, { width }: ExpertConfig, x: Activation, select: Tensor): Tensor => {
  const fused = weights("ffn_gate_up_exps")
  const half = (start: number): Tensor =>
    product(x, fused!, { select, view: (w, rowRank) => w.slice(w.rank - rowRank - 1, start, width) })
  const gate = fused === undefined ? product(x, need(weights, "ffn_gate_exps"), { select }) : half(0)
  const up = fused === undefined ? product(x, need(weights, "ffn_up_exps"), { select }) : half(width)
  return gated(gate.label("ffn_gate_exps"), up.label("ffn_up_exps"))
}

/** The chosen experts' outputs, weighed and summed: each token reads its own experts, indexed inside of the products. */
const tokenByToken = (input: BlockInput, experts: ExpertConfig, x: Activation, routed: Routed): Tensor => {
  // the experts' weights go into the activations, where the sum over experts is linear
  const inner = innerOf(input.weights, experts, forExperts(x), routed.chosen).mul(routed.weights.unsqueeze(-1))
  const down = need(input.weights, "ffn_down_exps")
  // stored beside the first half, which chooses for itself
  return expertSum(computed(inner, input), down, routed.chosen.contiguous()).label("ffn_down_exps")
}

/** A value's records `[.., K / 32, 12]` as rows of words, and back. */
const flat = (x: Tensor): Tensor => x.reshape([...x.shape.slice(0, -2), Number(x.dim(-2)) * Number(x.dim(-1))])
const records = (x: Tensor): Tensor =>
  x.reshape([...x.shape.slice(0, -1), Number(x.dim(-1)) / Int8.recordWords, Int8.recordWords])

/** The same for a batch: an expert's tokens are put together, and share what is read of it. */
const grouped = (input: BlockInput, experts: ExpertConfig, x: Activation, { chosen, weights }: Routed): Tensor => {
  const at = places(chosen, input.batch!.tiles, experts.count)
  const select = at.expert.unsqueeze(-1)
  const inPlaces: Activation = {
    values: toPlaces(at, x.values),
    int8: x.int8 === undefined ? undefined : records(toPlaces(at, flat(x.int8)))
  }
  const inner = keepPlaces(innerOf(input.weights, experts, inPlaces, select))
  const operand = activation(inner, input.activations, (made) => records(keepPlaces(flat(made))))
  const outputs = keepPlaces(product(operand, need(input.weights, "ffn_down_exps"), { select }).label("ffn_down_exps"))
  const weighed = fromPlaces(at, outputs).mul(weights.contiguous().unsqueeze(-1))
  return keep(input.order, weighed.sum(1).label("ffn_moe_out"))
}

const mixture = (input: BlockInput, experts: ExpertConfig, x: Activation): Mixture => {
  const { order, weights } = input
  const logits = keep(order, product(x, need(weights, "ffn_gate_inp")).label("ffn_gate_inp"))
  const bias = weights("exp_probs_b")
  // whoever needs the choice of a token makes it; those of a batch are made once
  const stored = input.batch === undefined ? undefined : (chosen: Tensor): Tensor => chosen.contiguous()
  const routed = route(experts, logits, bias === undefined ? undefined : plain(bias), stored)
  const mixed = (input.batch === undefined ? tokenByToken : grouped)(input, experts, x, routed)
  const output = experts.shared === 0
    ? mixed
    : mixed.add(dense(input, x, ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"]))
  return { output, chosen: routed.chosen }
}

/** What a block computes: `x [T, embedding]`, its write to the cache, and the experts it chose, `[T, used]`, if it has any. */
export interface BlockOutput {
  readonly x: Tensor
  readonly write: Tensor
  readonly chosen: Tensor | undefined
}

/** One block. */
export const block = (input: BlockInput): BlockOutput => {
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
