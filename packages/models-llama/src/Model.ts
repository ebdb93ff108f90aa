/** The forward pass of a model as a tensor program, and what the host computes for it. */
import type * as Decoder from "@tg/model-parts/Decoder"
import { plain } from "@tg/model-parts/Product"
import * as Rotary from "@tg/model-parts/Rotary"
import type { Tensor } from "@tg/tensor/Tensor"
import { block } from "./Block.ts"
import type { Config, RotaryConfig } from "./Config.ts"
import type { ModelWeights } from "./Weights.ts"

/** The rotations of a model: of blocks that see everything, and of those with a window. */
export const rotaries = ({ rotary, window }: Config): ReadonlyArray<RotaryConfig> =>
  window === undefined ? [rotary] : [rotary, window.rotary]

/**
 * Cosines and sines of each of the rotations, `[positions, rotated / 2, 2]`. `divisors` are the values of
 * `rope_freqs.weight`, if the file has them.
 */
export const cosSin = (
  config: Config,
  positions: ReadonlyArray<number>,
  divisors?: ArrayLike<number> | undefined
): ReadonlyArray<Float32Array> =>
  rotaries(config).map(({ base, linear, magnitude, yarn }) =>
    Rotary.table(
      Rotary.frequencies({ base, divisors, linear, rotated: config.rotated, yarn }),
      magnitude,
      positions
    )
  )

const kindOf = (config: Config, name: string, isWindow: boolean): Decoder.BlockKind => {
  const { epsilon, window } = config
  return {
    name: isWindow ? `window_${name}` : name,
    input: isWindow ? 1 : 0,
    build: (input) => block({ ...input, config, epsilon, window: isWindow ? window!.positions : undefined })
  }
}

/** A block with experts that sees all positions, as prediction blocks are, too. */
export const expertBlock = (config: Config): Decoder.BlockKind => kindOf(config, "expert_block", false)

/** The blocks of a model. */
export const decoder = (config: Config, weights: ModelWeights): Decoder.Decoder => {
  const { embeddingScale, epsilon, logitCap, window } = config
  const kinds = [false, true].map((isWindow) => ({
    dense: kindOf(config, "dense_block", isWindow),
    expert: kindOf(config, "expert_block", isWindow)
  }))
  const scale = weights.others.get("output.scale")
  const bias = weights.others.get("output.bias")
  return {
    layers: config.layers,
    epsilon,
    weights,
    kindOf: (index) => {
      const own = kinds[window?.isWindow(index) === true ? 1 : 0]!
      return weights.blocks[index]!.ffn_gate_inp === undefined ? own.dense : own.expert
    },
    embedded: embeddingScale === 1 ? undefined : (x) => x.mul(embeddingScale).label("inp_scaled"),
    logits: (z, buffers) => {
      const scaled = scale === undefined ? z : z.mul(plain({ layout: scale.layout, words: buffers(scale) }))
      const shifted = bias === undefined ? scaled : scaled.add(plain({ layout: bias.layout, words: buffers(bias) }))
      return logitCap === undefined ? shifted : tanh(shifted.mul(1 / logitCap)).mul(logitCap)
    }
  }
}

/** 2 sigmoid(2 x) - 1. */
const tanh = (x: Tensor): Tensor => x.mul(2).sigmoid().mul(2).sub(1)
