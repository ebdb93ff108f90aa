/** One step of training as a tensor program: forward, gradients, AdamW. Weights and moments are written in place. */
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { gradients } from "@tg/grad/Grad"
import { weightBuffers } from "@tg/model-parts/Decoder"
import type { Model } from "@tg/model-parts/Family"
import * as Program from "@tg/tensor/Program"
import { buffer, iota, scalar, type Tensor } from "@tg/tensor/Tensor"

/** How AdamW moves weights. */
export interface AdamW {
  /** How much the mean of gradients, and of their squares, keeps of itself. */
  readonly keep: readonly [mean: number, square: number]
  readonly epsilon: number
  readonly decay: number
}

/** What the host says of each step: the rate, and by how much the young means are too small. */
export const ratesOf = (rate: number, step: number, { keep: [mean, square] }: AdamW): Float32Array =>
  Float32Array.of(rate, 1 / (1 - mean ** step), 1 / (1 - square ** step))

/** Buffers by what is in them; those of a weight have an entry for each, in the order of `model.weights.all`. */
export interface Ids {
  readonly weights: ReadonlyArray<number>
  readonly means: ReadonlyArray<number>
  readonly squares: ReadonlyArray<number>
  readonly caches: ReadonlyArray<number>
  readonly tokens: number
  readonly targets: number
  readonly counts: number
  readonly positions: number
  readonly rates: number
  readonly loss: number
}

/** The program, and its buffers. */
export interface Step {
  readonly program: Program.TensorProgram
  readonly ids: Ids
}

/** What to learn from at once. */
export interface Size {
  readonly sequences: number
  /** Tokens of each. Together they are whole pieces of the cache. */
  readonly length: number
  readonly optimiser: AdamW
}

/** The mean over the targets that count of what their tokens surprise the model by, in nats. */
const lossOf = (logits: Tensor, targets: Tensor, counts: Tensor): Tensor => {
  const last = { axis: -1, keepDims: true } as const
  const shifted = logits.sub(logits.max(last))
  const named = targets.unsqueeze(-1).eq(iota(logits.arena, logits.dim(-1)).cast(DType.u32))
  const surprise = shifted.exp().sum(-1).log().sub(named.where(shifted, 0).sum(-1))
  return surprise.mul(counts).sum().div(counts.sum())
}

/** Writes a weight and the means of its gradient. Matrices decay towards zero, norms do not. */
const update = (
  { decay, epsilon, keep: [keptMean, keptSquare] }: AdamW,
  rates: Tensor,
  of: { readonly words: Tensor; readonly gradient: Tensor; readonly mean: Tensor; readonly square: Tensor },
  isMatrix: boolean
): ReadonlyArray<Tensor> => {
  const rate = (i: number): Tensor => rates.slice(0, i, 1)
  const mean = of.mean.mul(keptMean).add(of.gradient.mul(1 - keptMean))
  const square = of.square.mul(keptSquare).add(of.gradient.mul(of.gradient).mul(1 - keptSquare))
  const direction = mean.mul(rate(1)).div(square.mul(rate(2)).sqrt().add(epsilon))
  const weight = of.words.bitcast(DType.f32)
  const step = isMatrix ? direction.add(weight.mul(decay)) : direction
  return [
    Program.assign(of.words, weight.sub(step.mul(rate(0))).bitcast(DType.u32)),
    Program.assign(of.mean, mean),
    Program.assign(of.square, square)
  ]
}

/** The step of a model. */
export const make = (model: Model, { length, optimiser, sequences }: Size): Step => {
  const arena = new Arena()
  const { all } = model.weights
  const tokens = sequences * length
  let next = all.length
  const storage = (label: string, shape: ReadonlyArray<number>, dtype = DType.f32): Tensor =>
    buffer(arena, next++, { shape, dtype, label })
  const idOf = (x: Tensor): number => (x.node.arg as { readonly id: number }).id
  const weights = weightBuffers(arena, model.weights, 0)
  const means = all.map(({ layout, name }) => storage(`${name} mean`, [layout.words]))
  const squares = all.map(({ layout, name }) => storage(`${name} square`, [layout.words]))
  const caches = model.caches({ type: "f32", context: tokens }).map(({ dtype, shape }, i) =>
    storage(`cache ${i}`, shape.map(Number), dtype)
  )
  const given = {
    tokens: storage("tokens", [tokens], DType.u32),
    targets: storage("targets", [tokens], DType.u32),
    counts: storage("counts", [tokens]),
    positions: storage("positions", [tokens, ...model.inputs[0]!.row]),
    rates: storage("rates", [3]),
    loss: storage("loss", [])
  }
  const { effects, logits } = model.forward({
    buffers: weights,
    tokens: given.tokens,
    startPos: scalar(arena, 0),
    caches,
    inputs: [given.positions],
    sequence: length,
    rows: "all"
  })
  const loss = lossOf(logits.contiguous(), given.targets, given.counts)
  const words = all.map(weights)
  const updates = gradients(loss, words).flatMap((gradient, i) =>
    update(
      optimiser,
      given.rates,
      { words: words[i]!, gradient, mean: means[i]!, square: squares[i]! },
      all[i]!.layout.shape.length > 1
    )
  )
  return {
    program: Program.make([Program.assign(given.loss, loss), ...updates, ...effects]),
    ids: {
      weights: words.map(idOf),
      means: means.map(idOf),
      squares: squares.map(idOf),
      caches: caches.map(idOf),
      tokens: idOf(given.tokens),
      targets: idOf(given.targets),
      counts: idOf(given.counts),
      positions: idOf(given.positions),
      rates: idOf(given.rates),
      loss: idOf(given.loss)
    }
  }
}
