/** The memory that a model takes on a device, before anything is allocated: one answer for plans and for the loader. */
import * as DType from "@tg/core-uop/DType"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { maxElements } from "@tg/core-uop/Shape"
import type { Estimate } from "@tg/jit/Estimate"
import { piece } from "@tg/model-parts/Attention"
import type * as Family from "@tg/model-parts/Family"
import type { CacheType } from "@tg/model-parts/Halves"
import * as Order from "@tg/model-parts/Order"
import type { Activations } from "@tg/model-parts/Product"
import type { RangeifyError } from "@tg/rangeify/Rangeify"
import type { WeightRef } from "@tg/model-parts/Weights"
import type * as Program from "@tg/tensor/Program"
import type { BufferInfo } from "@tg/tensor/Program"
import { Effect, Option, Result, Schema } from "effect"
import { mostStep } from "./DraftLength.ts"
import * as Loader from "./Loader.ts"
import * as PredictionProgram from "./PredictionProgram.ts"
import * as Prompts from "./Prompts.ts"
import { mostRound } from "./RoundProgram.ts"
import { tokensOfSizes } from "./RoundLength.ts"
import * as Spans from "./Spans.ts"
import * as StepProgram from "./StepProgram.ts"

/** Sizes in bytes. */
export interface Memory {
  /** The weights as they lie on the device. */
  readonly weightBytes: number
  readonly kvBytes: number
  /** What lives only during a step, of the program for prompts and of the one that decodes. */
  readonly scratchBytes: number
  /** What programs of a few tokens take beside it, of each size, once all have been asked for: short prompts, drafts. */
  readonly fewBytes: number
  /** What goes in and out of steps: tokens, angles, logits. */
  readonly ioBytes: number
  /** What loading takes beside all of that, until the weights are there. */
  readonly stagingBytes: number
}

/** All memory at the moment when it is most: programs are made ready while weights are loaded. */
export const mostBytes = (
  { fewBytes, ioBytes, kvBytes, scratchBytes, stagingBytes, weightBytes }: Memory
): number => weightBytes + kvBytes + scratchBytes + fewBytes + ioBytes + stagingBytes

/** A model as far as its memory goes. */
export type Model = StepProgram.ModelShape & Pick<Family.Model, "prediction">

/** The prediction block of a model that has one. */
const blockOf = ({ prediction }: Model): Family.Prediction | undefined =>
  prediction === undefined ? undefined : Option.getOrUndefined(Result.getSuccess(prediction))

/** Whether the model has a prediction block. */
export const hasPrediction = (model: Model): boolean => blockOf(model) !== undefined

/** What the prediction block of a model reads beside it: none where there is no block. */
export const predictionWeights = (model: Model): ReadonlyArray<WeightRef> => {
  const names = new Set(model.weights.all.map(({ name }) => name))
  return (blockOf(model)?.weights ?? []).filter(({ name }) => !names.has(name))
}

/** All weights that are loaded: the model's, and with `predicts` those of its prediction block. */
export const weightsOf = (model: Model, predicts: boolean): ReadonlyArray<WeightRef> => [
  ...model.weights.all,
  ...predicts ? predictionWeights(model) : []
]

/** How the model will run. */
export interface Setting {
  readonly profile: DeviceProfile
  /** Tokens the cache holds. */
  readonly context: number
  readonly cache: CacheType
  readonly activations: Activations
  /** Tokens a step can process. */
  readonly prompts: Prompts.PromptShape
  /** Whether the prediction block is loaded; it is not, if it is not said. */
  readonly predicts?: boolean | undefined
  /** Whether steps verify drafts; they do not, if it is not said. */
  readonly drafts?: boolean | undefined
  /** Says what programs will take, as they will be compiled. */
  readonly estimate: Loader.Estimating
}

/** A model that the device has no room for. */
export class DoesNotFit extends Schema.TaggedError<DoesNotFit>()("DoesNotFit", {
  model: Schema.String,
  device: Schema.String,
  limitBytes: Schema.Finite,
  weightBytes: Schema.Finite,
  kvBytes: Schema.Finite,
  scratchBytes: Schema.Finite,
  fewBytes: Schema.Finite,
  ioBytes: Schema.Finite,
  stagingBytes: Schema.Finite,
  /** What could be less. */
  lower: Schema.String
}) {
  override get message(): string {
    const { fewBytes, ioBytes, kvBytes, lower, scratchBytes, stagingBytes, weightBytes } = this
    const parts: ReadonlyArray<readonly [string, number]> = [
      ["weights", weightBytes],
      ["cache", kvBytes],
      ["scratch", scratchBytes],
      ["steps of a few tokens", fewBytes],
      ["tokens and logits", ioBytes],
      ["staging", stagingBytes]
    ]
    const sum = parts.filter(([, bytes]) => bytes > 0).map(([what, bytes]) => `${what} ${gigabytes(bytes)}`).join(" + ")
    return `${this.model} does not fit ${this.device}: ${sum} = ${gigabytes(mostBytes(this))} > ` +
      `${gigabytes(this.limitBytes)} GB; ${lower}`
  }
}

/** The error of a model that does not fit, with what could be less. */
export const doesNotFit = (
  { config }: Pick<Model, "config">,
  { cache, context, drafts, profile }: Pick<Setting, "cache" | "context" | "drafts" | "profile">,
  memory: Memory
): DoesNotFit => {
  const { memoryBytes = 0, name } = profile
  // the cache grows with the context, scratch does not grow faster; where the cache alone is too much, nobody has looked at scratch
  const room = memory.scratchBytes === 0 ? 0 : memoryBytes - mostBytes({ ...memory, kvBytes: 0 })
  const fits = Math.floor(Math.floor(context * room / memory.kvBytes) / piece) * piece - Order.tileTokens
  const others = [
    ...drafts === true && memory.fewBytes > 0 ? ["no drafts (--draft off)"] : [],
    ...cache === "f32" ? ["a cache of half precision (--kv f16)"] : [],
    "a smaller model",
    "or another device"
  ]
  const lower = memory.weightBytes > memoryBytes
    ? "its weights alone are more; use a smaller model, or another device"
    : `use a smaller context (--context${fits > 0 ? ` ${fits} or less` : ""}), ${others.join(", ")}`
  return new DoesNotFit({ model: config.name, device: name, limitBytes: memoryBytes, lower, ...memory })
}

const gigabytes = (bytes: number): string => (bytes / 1e9).toPrecision(3)

const bytesOf = ({ dtype, shape }: Pick<BufferInfo, "dtype" | "shape">): number =>
  DType.bytes(dtype) * maxElements(shape)

const sum = (values: ReadonlyArray<number>): number => values.reduce((a, b) => a + b, 0)

/** What programs of a few tokens take: of each size memory of its own, in proportion to its tokens, and the rows of logits it leaves. */
const fewBytesOf = (
  model: Model,
  { activations, cache, context, drafts = false, estimate, predicts = false, profile, prompts }: Setting
): Effect.Effect<number, RangeifyError> => {
  const { sizes } = prompts
  const most = sizes.at(-1)
  if (most === undefined) return Effect.succeed(0)
  const size = {
    activations,
    cache,
    context,
    profile,
    chunk: most,
    isWhole: true,
    order: "tokens",
    rows: "last"
  } as const
  const programs = Effect.forEach(
    Spans.all(size),
    (span) =>
      Effect.map(estimate(StepProgram.stepProgram(model, { ...size, span }).sink), ({ blocks }) => sum(blocks) / most)
  )
  return Effect.map(programs, (bytesOfToken) => {
    const rowBytes = 4 * model.config.vocabulary
    // steps of fewer tokens may have a span less in the beginning; those behind end where these do
    const held = (tokens: number, rows: number): number => {
      const own = bytesOfToken.slice(-Spans.all({ ...size, chunk: tokens }).length)
      return tokens * sum(own) + rows * rowBytes * own.length
    }
    // drafts want the logits of all tokens, which is a program of its own
    const few = sizes.map((tokens) => held(tokens, 1) + (drafts && tokens <= mostStep ? held(tokens, tokens) : 0))
    // a device that works on its own goes through rounds of guesses, with programs of their own
    const hasRounds = predicts && drafts && profile.kind === "gpu"
    return sum(few) + (hasRounds ? tokensOfSizes * bytesOfToken.at(-1)! + mostRound * rowBytes : 0)
  })
}

/** The memory of a model, and what its decode step will do behind so many tokens. */
export const whole = (
  model: Model,
  setting: Setting,
  behind = setting.context - 1
): Effect.Effect<{ readonly memory: Memory; readonly decode: Estimate }, RangeifyError> =>
  Effect.gen(function*() {
    const { activations, cache, context, estimate, predicts = false, profile, prompts } = setting
    // a device that works on its own decodes with a program of its own; prompts always take the other one
    const size = { activations, cache, context, profile, states: predicts }
    const first = Prompts.expectsBatches(prompts)
      ? { chunk: prompts.batch, order: "features" } as const
      : { chunk: prompts.few, isWhole: prompts.sizes.length > 0, order: "tokens" } as const
    const prompt = StepProgram.stepProgram(model, { ...size, ...first, rows: "last" })
    const promptStep = yield* estimate(prompt.sink)
    const own = yield* Effect.forEach(profile.kind === "gpu" ? Spans.all(size) : [], (span) => {
      const { buffers, sink } = StepProgram.decodeProgram(model, { ...size, span })
      return Effect.map(estimate(sink), (step) => ({ buffers, span, step }))
    })
    const buffers = new Map(
      [...prompt.buffers, ...own.flatMap(({ buffers }) => buffers)].map((b) => [b.label ?? "", bytesOf(b)])
    )
    const stored = storedBytes(model, { cache, context, predicts })
    const block = predicts ? blockOf(model) : undefined
    const guesses = block === undefined ? [] : predictionPrograms({ model, block }, { ...size, ...first })
    const guessing = yield* Effect.forEach(guesses, ({ sink }) => estimate(sink))
    const few = yield* fewBytesOf(model, setting)
    // tokens, also for batches that are not compiled yet
    const spare = Prompts.tokensHeld(prompts) - (first.order === "tokens" ? first.chunk : Order.wholeTiles(first.chunk))
    const memory: Memory = {
      ...stored,
      scratchBytes: sum([promptStep, ...guessing].flatMap(({ blocks }) => blocks)) +
        sum(own.flatMap(({ step }) => step.blocks)),
      fewBytes: Math.max(0, few - (first.order === "tokens" ? sum(promptStep.blocks) : 0)),
      ioBytes: sum([...buffers.values()]) - storedBySteps(model, size) +
        (block === undefined ? 0 : 4 * (model.config.embedding + PredictionProgram.draftRoom)) +
        4 * spare,
      stagingBytes: yield* Loader.stagingBytes(
        weightsOf(model, predicts).map((ref) => ref.layout),
        profile,
        estimate
      )
    }
    return { memory, decode: own.findLast(({ span }) => span.from <= behind)?.step ?? promptStep }
  })

/** The programs of a prediction block that are made first. */
const predictionPrograms = (
  predicting: PredictionProgram.Predicting,
  shape: PredictionProgram.PredictionShape
): ReadonlyArray<Program.TensorProgram> => [
  PredictionProgram.readProgram(predicting, shape),
  PredictionProgram.guessProgram(predicting, { ...shape, chunk: 1, order: "tokens" })
]

type Stored = Pick<Setting, "cache" | "context" | "predicts">

/** What takes most of the memory, and is known without looking at any program. */
const storedBytes = (
  model: Model,
  { cache, context, predicts = false }: Stored
): Pick<Memory, "weightBytes" | "kvBytes"> => {
  const options = { type: cache, context: StepProgram.cacheRows(context) }
  const block = predicts ? blockOf(model) : undefined
  const caches = block === undefined
    ? model.caches(options)
    : [...model.caches(options), block.cache(options), StepProgram.statesOf(model.config, { cache, context })]
  return {
    weightBytes: sum(weightsOf(model, predicts).map(({ layout }) => 4 * layout.words)),
    kvBytes: sum(caches.map(bytesOf))
  }
}

/** As much of that as steps of the model itself have. */
const storedBySteps = (
  model: Model,
  { cache, context, states }: Pick<Setting, "cache" | "context"> & { readonly states: boolean }
): number => {
  const { kvBytes, weightBytes } = storedBytes(model, { cache, context, predicts: false })
  return kvBytes + weightBytes + (states ? bytesOf(StepProgram.statesOf(model.config, { cache, context })) : 0)
}

/** Below this part of the device's memory nobody needs to look more closely. */
export const plenty = 0.5

/** Refuses a model that does not fit its device, with the sum that does not. */
export const check = (model: Model, setting: Setting): Effect.Effect<void, DoesNotFit | RangeifyError> =>
  Effect.gen(function*() {
    const { memoryBytes } = setting.profile
    if (memoryBytes === undefined) return
    const least: Memory = { ...storedBytes(model, setting), scratchBytes: 0, fewBytes: 0, ioBytes: 0, stagingBytes: 0 }
    if (mostBytes(least) < plenty * memoryBytes) return
    const memory = mostBytes(least) > memoryBytes ? least : (yield* whole(model, setting)).memory
    if (mostBytes(memory) <= memoryBytes) return
    return yield* doesNotFit(model, setting, memory)
  })
