/** Gated feed-forward networks: one, and a mixture of experts of which a router chooses some. */
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import { iota, type Tensor } from "@tg/tensor/Tensor"
import type { Batch } from "./Attention.ts"
import { hidden } from "./Attention.ts"
import { fromPlaces, places, toPlaces } from "./Grouped.ts"
import * as Lowering from "./Lowering.ts"
import * as Norm from "./Norm.ts"
import {
  computed,
  forExperts,
  type Lookup,
  type Manner,
  need,
  type Operand,
  operand,
  plain,
  product,
  type Weight
} from "./Product.ts"
import { type Laid, once, shared, tiled } from "./Schedule.ts"

/** The mixture of experts; blocks before `firstBlock` are dense. */
export interface ExpertConfig {
  readonly firstBlock: number
  readonly count: number
  readonly used: number
  readonly shared: number
  readonly width: number
  readonly gating: "softmax" | "sigmoid"
  readonly normalise: boolean
  /** 1: the weights are not scaled. */
  readonly scale: number
  /** 1: no grouping. */
  readonly groups: number
  readonly groupsUsed: number
}

/** What becomes of the gate. */
export type Gate = "silu" | "gelu"

/** What a feed-forward network computes with. */
export interface FeedForwardInput extends Manner {
  readonly weights: Lookup
  /** In the order of features. */
  readonly batch?: Batch | undefined
  /** `silu` if it is not said. */
  readonly gate?: Gate | undefined
}

/** The reference's guard against a vanishing sum of expert weights. */
const leastWeightSum = 6.103515625e-5

/** `0.5 z (1 + tanh(u))` with `u = sqrt(2/pi) (z + 0.044715 z^3)`: the same as `z sigmoid(2 u)`. */
export const gelu = (z: Tensor): Tensor =>
  z.mul(z.add(z.mul(z).mul(z).mul(0.044715)).mul(2 * Math.sqrt(2 / Math.PI)).sigmoid())

const gated = (how: Gate | undefined, gate: Tensor, up: Tensor): Tensor =>
  (how === "gelu" ? gelu(gate) : gate.silu()).mul(up)

/** `x` times the matrix of a role, with the factor and the bias beside it if there are any. */
export const affine = (weights: Lookup, x: Operand, role: string): Tensor => {
  const y = product(x, need(weights, role)).label(role)
  const scale = weights(`${role}.scale`)
  const scaled = scale === undefined ? y : y.mul(plain(scale)).label(role)
  const bias = weights(`${role}.bias`)
  return bias === undefined ? scaled : scaled.add(plain(bias)).label(role)
}

/** The same as a value that several others read. */
export const project = (input: Laid & { readonly weights: Lookup }, x: Operand, role: string): Tensor =>
  shared(input, affine(input.weights, x, role))

/** What was computed, times the matrix of a role. */
export const linear = (input: Manner & { readonly weights: Lookup }, x: Tensor, role: string): Tensor =>
  affine(input.weights, computed(x, input), role)

/** The roles of the matrices of a gated network. */
type Gated = readonly [gate: string, up: string, down: string]

/** The first half of a gated network: what its down projection takes. */
const gatedUp = ({ gate: how, weights }: FeedForwardInput, x: Operand, [gate, up]: Gated): Tensor =>
  gated(how, affine(weights, x, gate), affine(weights, x, up))

/** A gated network with three matrices. */
export const dense = (input: FeedForwardInput, x: Operand, roles: Gated): Tensor => {
  return affine(input.weights, computed(gatedUp(input, x, roles), input), roles[2])
}

/** Whether a value is of a constant number of tokens, of several: those of a step of a few (any number, as in a batch, is symbolic). */
const isOfFew = (x: Tensor): boolean => typeof x.dim(0) === "number" && x.dim(0) !== 1

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

/**
 * Of a few tokens the choice and the weights are stored, by a launch in which the shared experts compute: a workgroup that chose for its
 * token would wait at a barrier for each of the best.
 */
const forFew = (routed: Routed): Routed =>
  isOfFew(routed.chosen) ? { chosen: once(routed.chosen), weights: once(routed.weights) } : routed

/** The output of the experts, and who they were: `[T, used]`. */
export interface Mixture {
  readonly output: Tensor
  readonly chosen: Tensor
}

/** The first half of the experts of `select`: what their down projections take. */
const innerOf = (
  { gate: how, weights }: FeedForwardInput,
  { width }: ExpertConfig,
  x: Operand,
  select: Tensor
): Tensor => {
  const fused = weights("ffn_gate_up_exps")
  const half = (start: number): Tensor =>
    product(x, fused!, { select, view: (w, rowRank) => w.slice(w.rank - rowRank - 1, start, width) })
  const whole = (role: string): Tensor => scaled(weights, role, product(x, need(weights, role), { select }), select)
  const gate = fused === undefined ? whole("ffn_gate_exps") : half(0)
  const up = fused === undefined ? whole("ffn_up_exps") : half(width)
  return gated(how, gate.label("ffn_gate_exps"), up.label("ffn_up_exps"))
}

/** `y [.., rows]` of the experts `select [..]`, each times its own factor if the file has them. */
const scaled = (weights: Lookup, role: string, y: Tensor, select: Tensor): Tensor => {
  const scale = weights(`${role}.scale`)
  return scale === undefined ? y : y.mul(plain(scale).gather(select).unsqueeze(-1))
}

/** sum_e weight_e expert_e(x), over the chosen experts: each token reads its own, indexed inside of the products. */
const tokenByToken = (input: FeedForwardInput, experts: ExpertConfig, x: Operand, routed: Routed): Tensor => {
  const { weights } = input
  const inner = computed(innerOf(input, experts, forExperts(x), routed.chosen), input)
  // of one token it is stored beside the first half, which chooses for itself
  const select = once(routed.chosen)
  const down = product(inner, need(weights, "ffn_down_exps"), { select })
  const output = scaled(weights, "ffn_down_exps", down, select).mul(routed.weights.unsqueeze(-1)).sum(1)
  return shared(input, output.label("ffn_down_exps"))
}

/** A value's records `[.., K / 32, 12]` as rows of words, and back. */
const flat = (x: Tensor): Tensor => x.reshape([...x.shape.slice(0, -2), Number(x.dim(-2)) * Number(x.dim(-1))])
const records = (x: Tensor): Tensor =>
  x.reshape([...x.shape.slice(0, -1), Number(x.dim(-1)) / Int8.recordWords, Int8.recordWords])

/** The same for a batch: an expert's tokens are put together, and share what is read of it. */
const grouped = (
  input: FeedForwardInput,
  experts: ExpertConfig,
  x: Operand,
  { chosen, weights }: Routed
): Tensor => {
  const at = places(chosen, input.batch!.tiles, experts.count)
  const select = at.expert.unsqueeze(-1)
  const inPlaces: Operand = {
    ...x,
    values: toPlaces(at, x.values),
    int8: x.int8 === undefined ? undefined : records(toPlaces(at, flat(x.int8)))
  }
  const inner = tiled(innerOf(input, experts, inPlaces, select))
  const down = product(
    operand(inner, input.activations, (made) => records(tiled(flat(made)))),
    need(input.weights, "ffn_down_exps"),
    { select }
  )
  const outputs = tiled(scaled(input.weights, "ffn_down_exps", down, select).label("ffn_down_exps"))
  const weighed = fromPlaces(at, outputs).mul(once(weights).unsqueeze(-1))
  return shared(input, weighed.sum(1).label("ffn_moe_out"))
}

const ofShared: Gated = ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"]

/** Ways to compute the chosen experts, by name. */
export const lowerings: Readonly<Record<Lowering.OfMixture, typeof tokenByToken>> = {
  "token by token": tokenByToken,
  "grouped by expert": grouped
}

const matrices = ["ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps", "ffn_down_exps"]

/** What each of them takes for the tokens of `x`. */
const loweringsOf = (
  { batch, profile, weights }: FeedForwardInput,
  { count, used }: ExpertConfig,
  x: Tensor
): ReadonlyArray<Lowering.Lowering<Lowering.OfMixture>> => {
  const own = matrices.flatMap((role) => weights(role) ?? [])
  const sum = (of: (layout: Weight["layout"]) => number): number => own.reduce((n, { layout }) => n + of(layout), 0)
  const size = {
    count,
    used,
    values: sum(({ shape }) => shape.reduce((n, d) => n * d, 1)) / count,
    bytes: sum(({ words }) => 4 * words) / count
  }
  const tokens = x.dim(0)
  return Lowering.ofMixture(size, {
    profile,
    isBatch: batch !== undefined,
    tokens: typeof tokens === "number" ? tokens : Lowering.usualTokens(Shape.maxOf(tokens), profile)
  })
}

/** A mixture of experts, with the shared ones that every token uses. */
export const mixture = (input: FeedForwardInput, experts: ExpertConfig, x: Operand): Mixture => {
  const { weights } = input
  const logits = shared(input, product(x, need(weights, "ffn_gate_inp")).label("ffn_gate_inp"))
  const bias = weights("exp_probs_b")
  // whoever needs the choice of a token makes it; those of a batch are made once
  const routed = forFew(
    route(experts, logits, bias === undefined ? undefined : plain(bias), input.batch === undefined ? undefined : once)
  )
  const { name } = Lowering.cheapest(loweringsOf(input, experts, x.values))
  const mixed = lowerings[name](input, experts, x, routed)
  return { output: experts.shared === 0 ? mixed : mixed.add(dense(input, x, ofShared)), chosen: routed.chosen }
}

/**
 * What the second half of a block adds, of its input's norm of that role: of one network, or, where the block has a router, of a
 * mixture of experts.
 */
export const feedForward = (
  input: FeedForwardInput & Norm.NormInput,
  experts: ExpertConfig | undefined,
  x: Tensor,
  role: string
): { readonly output: Tensor; readonly chosen?: Tensor } => {
  const normed = Norm.operand(input, x, role)
  return input.weights("ffn_gate_inp") === undefined
    ? { output: dense(input, normed, ["ffn_gate", "ffn_up", "ffn_down"]) }
    : mixture(input, experts!, normed)
}
