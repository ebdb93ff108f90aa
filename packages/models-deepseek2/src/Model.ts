/** The forward pass of a `deepseek2` model as a tensor program. */
import * as Layout from "@tg/gguf/Layout"
import * as Nn from "@tg/tensor/Nn"
import { type Unit, unit } from "@tg/tensor/Program"
import { buffer, scalar, type Tensor } from "@tg/tensor/Tensor"
import type { Arena } from "@tg/core-uop/UOp"
import * as DType from "@tg/core-uop/DType"
import { activation, type Activations, type Batch, block, type BlockOutput, product } from "./Block.ts"
import type { Config } from "./Config.ts"
import * as Order from "./Order.ts"
import type { BlockWeights, ModelWeights, Role, WeightRef } from "./Weights.ts"

/** The buffers of weights: a `u32 [layout.words]` tensor for each. */
export type WeightBuffers = (ref: WeightRef) => Tensor

/** What the forward pass runs on. */
export interface ForwardInput {
  readonly config: Config
  readonly weights: ModelWeights
  /** How products with quantised weights read activations; `float` if it is not said. */
  readonly activations?: Activations | undefined
  readonly buffers: WeightBuffers
  /** `u32 [T]`; T may be symbolic. */
  readonly tokens: Tensor
  /**
   * Many tokens, stored feature by feature: T is a multiple of `Order.tileTokens`, of which the last ones only fill up.
   */
  readonly batch?: Batch | undefined
  /** Position of the first token: a symbolic integer (`index`, rank 0). */
  readonly startPos: Tensor
  /** One per block, as `Cache.storage` says. Rows from `startPos` on are written. */
  readonly caches: ReadonlyArray<Tensor>
  /** `f32 [T, rotated / 2, 2]`, from `Rope.rope` for positions startPos, startPos + 1, .. */
  readonly cosSin: Tensor
  /** Logits of all tokens, or of the last one. */
  readonly rows: "all" | "last"
  /** Whether the experts that blocks choose are among the results; they are not, if it is not said. */
  readonly experts?: "kept" | undefined
}

/** `logits [T or 1, vocabulary]`, and the cache writes, which must reach the sink. */
export interface ForwardOutput {
  readonly logits: Tensor
  readonly effects: ReadonlyArray<Tensor>
  /** Of each block with experts, in order: those chosen, `u32 [T, used]`. Empty unless they are kept. */
  readonly experts: ReadonlyArray<Tensor>
}

/** A buffer for each weight, numbered from `firstId`. */
export const weightBuffers = (arena: Arena, weights: ModelWeights, firstId: number): WeightBuffers => {
  const made = new Map(
    weights.all.map((ref, i) => [
      ref.name,
      buffer(arena, firstId + i, { shape: [ref.layout.words], dtype: DType.u32, label: ref.name })
    ])
  )
  return (ref) => made.get(ref.name)!
}

const orderOf = ({ batch }: ForwardInput): Order.Order => batch === undefined ? "tokens" : "features"

/** Builds the call of a block. */
type Blocks = (x: Tensor, index: number) => BlockOutput

/** Blocks of one kind share a body, which is built once: the weights come in as arguments. */
const blocksOf = (input: ForwardInput): Blocks => {
  const kinds = new Map<string, Unit>()
  return (x, index) => {
    const weights: BlockWeights = input.weights.blocks[index]!
    const roles = Object.keys(weights) as ReadonlyArray<Role>
    const kind = roles.map((role) => `${role} ${weights[role]!.layout.type} ${weights[role]!.layout.shape.join()}`)
      .join()
    const call = kinds.get(kind) ?? blockUnit(input, weights)
    kinds.set(kind, call)
    const words = roles.map((role) => input.buffers(weights[role]!))
    // `x` goes in and out as it is stored
    const [out, write, chosen] = call([x, input.cosSin, input.caches[index]!, input.startPos, ...words])
    // the call site: what tells the launches of equal blocks apart
    x.arena.label(out!.node.src[0]!, `blk.${index}`)
    return { x: out!, write: write!, chosen }
  }
}

/** The block of all weights with these layouts. */
const blockUnit = (input: ForwardInput, weights: BlockWeights): Unit => {
  const roles = Object.keys(weights) as ReadonlyArray<Role>
  const order = orderOf(input)
  const isBatch = order === "features"
  return unit(weights.ffn_gate_inp === undefined ? "dense_block" : "expert_block", (...params) => {
    const [own, cosSin, rows, startPos] = params
    const made = block({
      // of many tokens, nothing is read by few rows
      activations: isBatch && input.activations === "int8" ? "int8-all" : input.activations ?? "float",
      config: input.config,
      weights: (role) => {
        const at = roles.indexOf(role)
        return at < 0 ? undefined : { layout: weights[role]!.layout, words: params[4 + at]! }
      },
      x: isBatch ? Order.load(own!) : own!,
      cosSin: cosSin!,
      cache: rows!,
      startPos: startPos!,
      order,
      batch: input.batch
    })
    const out = isBatch ? Order.store(made.x) : made.x
    return input.experts === undefined || made.chosen === undefined
      ? [out, made.write]
      : [out, made.write, made.chosen]
  })
}

/** Tokens to logits. */
export const forward = (input: ForwardInput): ForwardOutput => {
  const { activations = "float", batch, buffers, config, tokens, weights } = input
  const { layout } = weights.tokenEmbedding
  const embedded = Layout.dequantise(layout, buffers(weights.tokenEmbedding), tokens).label("token_embd")
  let stored = batch === undefined ? embedded : Order.store(embedded)
  const effects: Array<Tensor> = []
  const experts: Array<Tensor> = []
  const blockAt = blocksOf(input)
  for (let i = 0; i < config.layers; i++) {
    const made = blockAt(stored, i)
    stored = made.x
    effects.push(made.write)
    if (made.chosen !== undefined) experts.push(made.chosen)
  }
  const order = input.rows === "all" ? orderOf(input) : "tokens"
  const x = batch === undefined ? stored : Order.load(stored)
  const row = x.slice(0, (batch?.count ?? scalar(x.arena, x.dim(0))).sub(1), 1)
  // a batch's one row is spread over memory, and every row of the output matrix reads it: it is laid out first
  const kept = input.rows === "all" ? x : batch === undefined ? row : row.contiguous()
  const gain = Layout.dequantise(weights.outputNorm.layout, buffers(weights.outputNorm))
  const normed = kept.mul(Order.keep(order, Nn.rmsScale(kept, config.epsilon))).mul(gain).label("output_norm")
  const output = { layout: weights.output.layout, words: buffers(weights.output) }
  const operand = activation(Order.keep(order, normed), batch === undefined ? activations : "float")
  const logits = Order.keep(order, product(operand, output).label("output"))
  return { logits, effects, experts }
}
