/**
 * What steps of a few tokens take on a device, by the roofline of their products: good enough to compare numbers of tokens before any program of
 * a model is made. `StepPlan` predicts a step by its kernels, which takes seconds.
 */
import { type DeviceProfile, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { bytesOf, table } from "@tg/gguf/GgufType"
import { tokensOfTile } from "@tg/heuristics/Kinds"
import type { Model } from "@tg/model-parts/Family"
import type * as Lowering from "@tg/model-parts/Lowering"
import type { WeightRef } from "@tg/model-parts/Weights"

/** A model as far as its costs go. */
export type Weighed = Pick<Model, "config" | "weights">

/** Launches of a layer, about: 8 to 9 of one token, 10 to 14 of a few (`bench/counts.json`, docs/few-tokens.md). */
const launchesOfLayer = 10
/** Instructions of a product, with four of bytes in one, and those that unpack a weight as multiples of it. */
const productOperations = { packed: 1 / 4, float: 1 } as const
const unpacking = 2
/** A program for twice as many tokens takes memory and has to be compiled: a smaller gain is not worth it. */
const worthwhile = 1.1

/** Whether a tensor has the weights of all experts, of which a token takes some. */
export const isOfExperts = ({ name }: WeightRef): boolean => /_exps\./.test(name)

/** A mixture of the model, of its blocks on average; none where it has no experts. */
export const mixtureOf = ({ config: { experts }, weights }: Weighed): Lowering.MixtureSize | undefined => {
  const own = weights.all.filter(isOfExperts)
  if (experts === undefined || own.length === 0) return undefined
  const all = experts.count * new Set(own.map(({ name }) => name.split(".", 2).join("."))).size
  const sum = (of: (layout: WeightRef["layout"]) => number): number => own.reduce((n, { layout }) => n + of(layout), 0)
  return {
    count: experts.count,
    used: experts.used,
    values: sum(({ shape }) => shape.reduce((n, d) => n * d, 1)) / all,
    bytes: sum(({ words }) => 4 * words) / all
  }
}

/** The part of the experts that one of so many tokens has chosen, if each chooses by itself. */
const chosenPart = ({ experts }: Weighed["config"], tokens: number): number =>
  experts === undefined ? 1 : 1 - (1 - experts.used / experts.count) ** tokens

/** Bytes of weights that a step reads, and the instructions that unpack and multiply them. */
const readBy = ({ config, weights }: Weighed, profile: DeviceProfile, tokens: number) => {
  const tiles = Math.ceil(tokens / tokensOfTile(profile))
  const all = { bytes: 0, operations: 0 }
  for (const ref of weights.all) {
    // of the embedding only rows are read, unless it is the output matrix too
    if (ref === weights.tokenEmbedding && ref !== weights.output) continue
    const { shape, type } = ref.layout
    const values = shape.reduce((n, d) => n * d, 1)
    const part = isOfExperts(ref) ? chosenPart(config, tokens) : 1
    all.bytes += part * (bytesOf(type, shape.toReversed()) as number)
    const own = isOfExperts(ref) ? chosenPart(config, 1) : 1
    const isPacked = profile.packedDot && table[type].blockValues > 1
    all.operations += values * (tokens * own + unpacking * tiles * part) *
      productOperations[isPacked ? "packed" : "float"]
  }
  return all
}

/** Microseconds of a step of so many tokens: its launches, and the longer of reading weights and multiplying with them. */
export const microsOf = (model: Weighed, profile: DeviceProfile, tokens: number): number => {
  const { loadMicros, operationsPerByte } = quantitiesOf(profile)
  const { bytes, operations } = readBy(model, profile, tokens)
  return model.config.layers * launchesOfLayer * (profile.dispatchMicros + loadMicros) +
    Math.max(bytes, operations / operationsPerByte) / profile.bytesPerMicro
}

/** Whether a step of twice so many tokens takes so much less than two of them that it is worth a program of its own. */
export const paysTwice = (model: Weighed, profile: DeviceProfile, tokens: number): boolean =>
  2 * microsOf(model, profile, tokens) > worthwhile * microsOf(model, profile, 2 * tokens)

/** A number of tokens that has a program, and what a step of it takes. */
export interface SizeCost {
  readonly tokens: number
  readonly micros: number
}

/**
 * How many of the tokens that are waited for, step after step, one step takes: those of the size that computes most of them in the same time. A
 * step that is not full takes as long as a full one, so 17 conversations go faster in turns of 16 than all in steps of 32.
 */
export const fullest = (sizes: ReadonlyArray<SizeCost>, waiting: number): number => {
  const rate = ({ micros, tokens }: SizeCost): number => Math.min(tokens, waiting) / micros
  const [best] = sizes.toSorted((a, b) => rate(b) - rate(a) || b.tokens - a.tokens)
  return best?.tokens ?? waiting
}
