/** The forward pass of a `deepseek2` model as a tensor program. */
import * as Decoder from "@tg/model-parts/Decoder"
import type { Tensor } from "@tg/tensor/Tensor"
import { block } from "./Block.ts"
import type { Config } from "./Config.ts"
import type { ModelWeights } from "./Weights.ts"

/** What the forward pass runs on. */
export interface ForwardInput extends Omit<Decoder.ForwardInput, "inputs"> {
  readonly config: Config
  readonly weights: ModelWeights
  /** `f32 [T, rotated / 2, 2]`, from `Rope.rope` for positions startPos, startPos + 1, .. */
  readonly cosSin: Tensor
}

const kindOf = (config: Config, name: string): Decoder.BlockKind => ({
  name,
  input: 0,
  build: (input) => block({ ...input, config, epsilon: config.epsilon })
})

/** A block with experts, as prediction blocks are, too. */
export const expertBlock = (config: Config): Decoder.BlockKind => kindOf(config, "expert_block")

/** The blocks of a model. */
export const decoder = (config: Config, weights: ModelWeights): Decoder.Decoder => {
  const dense = kindOf(config, "dense_block")
  const expert = expertBlock(config)
  return {
    layers: config.layers,
    epsilon: config.epsilon,
    weights,
    kindOf: (index) => weights.blocks[index]!.ffn_gate_inp === undefined ? dense : expert
  }
}

/** Tokens to logits. */
export const forward = ({ config, cosSin, weights, ...input }: ForwardInput): Decoder.ForwardOutput =>
  Decoder.forward(decoder(config, weights), { ...input, inputs: [cosSin] })
