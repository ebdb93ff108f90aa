/** The equations of a prediction block. */
import type * as Dim from "@tg/core-uop/Shape"
import * as Layout from "@tg/gguf/Layout"
import * as Nn from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
import { type Decoder, type ForwardInput, head, through } from "./Decoder.ts"
import * as Halves from "./Halves.ts"
import type { Order } from "./Order.ts"
import type { PredictionInput, PredictionOutput, Predictor } from "./Prediction.ts"
import { ofTokens, product } from "./Product.ts"
import { shared, stored } from "./Schedule.ts"
import type { WeightRef } from "./Weights.ts"

/** The states in front of `length` tokens from `first` on, of all that are stored: zeros in front of position 0. */
export const before = (
  states: Tensor,
  { embedding, first, length }: { readonly embedding: number; readonly first: Tensor; readonly length: Dim.Dim }
): Tensor => Halves.fromRows(states.pad([[1, 0], [0, 0]]).slice(0, first, length), embedding)

/** The block behind the model's as a model of one block. */
const decoderOf = ({ block, epsilon, kind, weights }: Predictor): Decoder => ({
  layers: 1,
  firstBlock: block,
  epsilon,
  weights: {
    blocks: [weights.block],
    tokenEmbedding: weights.embedding,
    outputNorm: weights.headNorm,
    output: weights.head
  },
  kindOf: () => kind
})

/** Tokens and the states in front of them to guesses. */
export const predict = (predictor: Predictor, { cache, hidden, ...input }: PredictionInput): PredictionOutput => {
  const { epsilon, weights } = predictor
  const { activations = "float", batch, buffers, tokens } = input
  const order: Order = batch === undefined ? "tokens" : "features"
  const norm = (x: Tensor, gain: WeightRef, name: string): Tensor =>
    x.mul(shared({ order }, Nn.rmsScale(x, epsilon))).mul(Layout.dequantise(gain.layout, buffers(gain))).label(name)
  const embedding = Layout.dequantise(weights.embedding.layout, buffers(weights.embedding), tokens).label("token_embd")
  const both = Nn.cat([norm(embedding, weights.embeddingNorm, "enorm"), norm(hidden, weights.hiddenNorm, "hnorm")], -1)
  const { layout } = weights.projection
  const manner = {
    activations: batch !== undefined && activations === "int8" ? "int8-all" : activations,
    order
  } as const
  const joined = ofTokens(stored({ order }, both.label("eh_norm")), manner)
  const z = product(joined, { layout, words: buffers(weights.projection) }).label("eh_proj")
  const decoder = decoderOf(predictor)
  const forward: ForwardInput = { ...input, caches: [cache] }
  const { effects, x } = through(decoder, forward, z)
  const { logits, normed } = head(decoder, forward, x)
  return { logits, hidden: normed, effects }
}
