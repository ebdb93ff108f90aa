/** How prompts are cut into steps. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { hasManyRegisters } from "@tg/heuristics/Kinds"
import * as Order from "@tg/model-parts/Order"
import * as StepCost from "./StepCost.ts"
import { cacheRows } from "./StepProgram.ts"

/** Tokens appended at a time, and of a short prompt. */
export const defaultChunk = 32
/** Tokens of a longer prompt processed at a time: enough to read each weight seldom. */
const largestBatch = { gpu: 512, cpu: 128 }
/**
 * Tokens of a step on a device that works on its own: each number has a program, in which tokens share what they read. Fewer tokens
 * take the next larger one, whose last rows only fill up. A thread that shares a weight among tokens has a sum for each of them. Where
 * registers are many, a step of two such tiles may pay besides: it unpacks weights twice, but reads them once.
 */
const wholeSizes = { manyRegisters: [1, 2, 4, 8, 16], fewRegisters: [1, 2, 4] } as const
/**
 * Steps of a few tokens that a GPU takes instead of a batch, of a dense model and of a mixture. A batch of a mixture computes a tile for most of its experts, whatever it holds: on an H100 one of 128 tokens of
 * GLM-4.7-Flash takes 58 ms and one of 512 102, three steps of 32 take 41 and four 54 (`docs/few-tokens.md`). Where registers are few nothing was measured.
 */
const stepsForBatch = [2, 3] as const
const stepsFor = (profile: DeviceProfile, kind: 0 | 1): number => stepsForBatch[hasManyRegisters(profile) ? kind : 0]

/**
 * The same where contexts are so long that batches are small: of no more tokens than so many steps a batch is never taken. Of a mixture it reads all experts, whatever it holds, and per token and
 * position before it steps take about half as long. On an H200 a batch of 32 tokens of Llama-3.1-8B behind 16000 takes 90 ms and a step 40, of Qwen3-30B-A3B 127 and 39; a batch of 64 of
 * GLM-4.7-Flash 243 and two steps 113. A batch of 128 of GLM takes 70 ms behind nothing, four steps 56.
 */
const stepsForSmallBatch = [1, 4] as const

/** Tokens from which a prompt is a batch on a processor: it gains as much, but decodes with the program of few tokens, so a batch is one more program to compile. */
const processorBatchFrom = 64

/** What the attention scores of a batch may take. */
const scoreBytes = 256 * 2 ** 20

/** The programs that process prompts, by the tokens they take at a time. */
export interface PromptShape {
  /** Tokens from which a prompt is a batch. */
  readonly batchFrom: number
  readonly batch: number
  /** Of a prompt that is no batch. */
  readonly few: number
  /** Numbers of tokens that have a program of their own, rising; where there are none, one program takes any number. */
  readonly sizes: ReadonlyArray<number>
  /** What a step of each of them takes, to choose among them; nothing where they were given. */
  readonly costs: ReadonlyArray<StepCost.SizeCost>
  /** Where all logits are wanted. */
  readonly chunk: number
}

/** Numbers of tokens that have a program of their own on a device, of `most` at most where that is a matter of costs. */
const sizesOn = (model: StepCost.Weighed, profile: DeviceProfile, most: number): ReadonlyArray<number> => {
  if (profile.kind !== "gpu") return []
  if (!hasManyRegisters(profile)) return wholeSizes.fewRegisters
  const usual = wholeSizes.manyRegisters
  const tile = usual[usual.length - 1]!
  return 2 * tile <= most && StepCost.paysTwice(model, profile, tile) ? [...usual, 2 * tile] : usual
}

/**
 * What fits a model and a device: at most so many tokens that the attention scores of a step, its largest value, take one
 * binding.
 */
export const promptShape = (
  model: StepCost.Weighed,
  { asked, batchFrom, context, profile, sizes: given }: {
    readonly asked: number | undefined
    readonly batchFrom?: number | undefined
    readonly context: number
    readonly profile: DeviceProfile
    readonly sizes?: ReadonlyArray<number> | undefined
  }
): PromptShape => {
  const scores = 4 * model.config.heads * cacheRows(context)
  const fitting = Math.floor(Math.min(scoreBytes, profile.maxBindingBytes) / scores)
  const chunk = Math.min(asked ?? Math.min(defaultChunk, Math.max(1, fitting)), context)
  const isTooLarge = (tokens: number): boolean =>
    tokens > fitting || scores * Order.roomFor(tokens, profile) > profile.maxBindingBytes
  let batch = largestBatch[profile.kind]
  while (batch >= Order.tileTokens && isTooLarge(batch)) batch /= 2
  const whole = sizesOn(model, profile, chunk)
  const most = whole.at(-1) ?? 0
  const kind = model.config.experts === undefined ? 0 : 1
  const none = batch < Order.tileTokens || batch <= stepsForSmallBatch[kind] * most
  const from = batchFrom ??
    (none ? Infinity : profile.kind === "cpu" ? processorBatchFrom : stepsFor(profile, kind) * most + 1)
  const sizes = (given ?? whole).filter((n) => n <= chunk)
  return {
    batchFrom: from,
    batch: Math.min(asked ?? Math.max(batch, Order.tileTokens), context),
    few: sizes.findLast((n) => n < from) ?? chunk,
    sizes,
    costs: given === undefined
      ? sizes.map((tokens) => ({ tokens, micros: StepCost.microsOf(model, profile, tokens) }))
      : [],
    chunk
  }
}

/** Tokens that a session has room for on their way into steps. */
export const tokensHeld = ({ batch, batchFrom, chunk, few }: PromptShape): number =>
  Order.wholeTiles(Math.max(chunk, few, batchFrom === Infinity ? 1 : batch))

/** The number of tokens whose program takes so many, or as many of them as one step can; nothing where any number has the same. */
export const sizeFor = ({ sizes }: Pick<PromptShape, "sizes">, tokens: number): number | undefined =>
  sizes.find((size) => size >= tokens) ?? sizes.at(-1)

/** Whether memory is set apart for batches: where a processor decides late whether to compile them, it is not. */
export const expectsBatches = ({ batchFrom, sizes }: PromptShape): boolean =>
  batchFrom <= defaultChunk || batchFrom !== Infinity && sizes.length > 0

/** Whether a prompt of a few words is a batch. */
export const isBatchFirst = ({ batchFrom }: PromptShape): boolean => batchFrom <= defaultChunk

/** Tokens that are processed together behind `start` others. */
export interface Piece {
  readonly start: number
  readonly length: number
}
