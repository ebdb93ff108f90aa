/** What one decode step will launch, read, allocate and take, without a device and without weights. */
import * as DType from "@tg/core-uop/DType"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { maxElements } from "@tg/core-uop/Shape"
import { bytesOf } from "@tg/gguf/GgufType"
import { type Choose, estimate, type LaunchEstimate } from "@tg/jit/Estimate"
import type { JitError } from "@tg/jit/Jit"
import type { Activations } from "@tg/models-deepseek2/Block"
import type * as Cache from "@tg/models-deepseek2/Cache"
import * as Config from "@tg/models-deepseek2/Config"
import * as Shapes from "@tg/models-deepseek2/Shapes"
import * as Weights from "@tg/models-deepseek2/Weights"
import type { BufferInfo } from "@tg/tensor/Program"
import { Result } from "effect"
import * as Session from "./Session.ts"

/** A model as far as a plan needs it. */
export interface Model {
  readonly name: string
  readonly config: Config.Config
  readonly weights: Weights.ModelWeights
}

/** Why there is no model: in practice, because the name is unknown. */
export type ShapeError = Shapes.UnknownShape | Config.ConfigError | Weights.WeightError

/** The model of a shape: `glm-4.7-flash:q4_0`. */
export const fromShape = (name: string): Result.Result<Model, ShapeError> =>
  Result.gen(function*() {
    const shape = yield* Shapes.find(name)
    const config = yield* Config.fromMetadata(shape)
    return { name: shape.name, config, weights: yield* Weights.find(config, shape) }
  })

/** The situation to plan for. */
export interface PlanOptions {
  readonly profile: DeviceProfile
  /** Tokens the cache holds; the step is the one that fills its last place. */
  readonly context: number
  readonly cache: Cache.CacheType
  /** `auto` by default. */
  readonly activations?: Session.ActivationPolicy | undefined
  /** Tokens a step can process; the session's default. */
  readonly chunk?: number | undefined
  /** Which opts a kernel gets: the heuristics' if nothing else is given. */
  readonly choose?: Choose | undefined
}

/** All launches of one kernel. */
export interface KernelSummary {
  readonly name: string
  readonly calls: number
  /** Of one call. */
  readonly bytes: number
  readonly micros: number
  readonly workgroups: number
  readonly threads: number
}

/** What a step will be like. Sizes in bytes. */
export interface StepPlan {
  readonly model: string
  readonly deviceProfile: string
  readonly context: number
  readonly cache: Cache.CacheType
  readonly activations: Activations
  readonly dispatchesPerToken: number
  readonly dispatchesPerLayer: ReadonlyArray<number>
  /** Weights read: those of all tokens, the chosen experts' share, and one row of the embedding. */
  readonly bytesPerToken: number
  /** Cache read in the last place of the context. */
  readonly kvBytesPerToken: number
  /** Everything that the kernels read and write, caches and activations included. */
  readonly movedBytesPerToken: number
  /** Memory of the weights as they lie on the device. */
  readonly weightBytes: number
  readonly kvBytes: number
  /** Memory that lives only during a step, of the program for prompts and of the one that decodes. */
  readonly scratchBytes: number
  /** What goes in and out of steps: tokens, angles, logits. */
  readonly ioBytes: number
  /** Tensors that take more than one binding of the device. */
  readonly tensorsOverBinding: number
  readonly predictedMsPerToken: number
  /** In the order of their first launch. */
  readonly kernels: ReadonlyArray<KernelSummary>
}

/** Plans the decode step of a session. */
export const plan = (
  { config, name, weights }: Model,
  { activations: policy, cache, choose, chunk: wanted = Session.defaultChunk, context: asked, profile }: PlanOptions
): Result.Result<StepPlan, Session.ContextFull | Session.InvalidTokens | JitError> =>
  Result.gen(function*() {
    const context = Session.contextOf(config, asked)
    if (typeof context !== "number") return yield* Result.fail(context)
    const model = { config, weights }
    const chunk = Math.min(wanted, context)
    // a device that works on its own decodes with a program of its own; prompts always take the other one
    const activations = Session.activationsOn(profile, policy)
    const size = { context, cache, activations }
    const prompt = Session.stepProgram(model, { ...size, rows: "last", chunk })
    const decode = profile.kind === "gpu" ? Session.decodeProgram(model, size) : prompt
    const promptStep = yield* estimate(prompt.sink, profile, choose)
    const decodeStep = decode === prompt ? promptStep : yield* estimate(decode.sink, profile, choose)
    const launches = decodeStep.launches({ T: 1, startPos: context - 1 })

    const buffers = new Map([...prompt.buffers, ...decode.buffers].map((b) => [b.label ?? "", bytesOfBuffer(b)]))
    const labelled = (isWanted: (label: string) => boolean): number =>
      sum([...buffers].filter(([label]) => isWanted(label)).map(([, bytes]) => bytes))
    const isCache = (label: string): boolean => label.startsWith("cache_")
    const kvBytes = labelled(isCache)
    const names = new Set(weights.all.map((ref) => ref.name))
    return {
      model: name,
      deviceProfile: profile.name,
      context,
      cache,
      activations,
      dispatchesPerToken: launches.length,
      dispatchesPerLayer: Array.from(
        { length: config.layers },
        (_, i) => launches.filter(({ step }) => step.site?.split("/")[0] === `blk.${i}`).length
      ),
      bytesPerToken: weightsRead(config, weights),
      kvBytesPerToken: kvBytes,
      movedBytesPerToken: sum(launches.map((launch) => launch.bytes)),
      weightBytes: labelled((label) => names.has(label)),
      kvBytes,
      scratchBytes: sum(promptStep.blocks) + (decodeStep === promptStep ? 0 : sum(decodeStep.blocks)),
      ioBytes: labelled((label) => !isCache(label) && !names.has(label)),
      tensorsOverBinding: weights.all.filter(({ layout }) => 4 * layout.words > profile.maxBindingBytes).length,
      predictedMsPerToken: sum(launches.map((launch) => launch.micros)) / 1000,
      kernels: summaries(launches)
    }
  })

const bytesOfBuffer = ({ dtype, shape }: BufferInfo): number => DType.bytes(dtype) * maxElements(shape)

const sum = (values: ReadonlyArray<number>): number => values.reduce((a, b) => a + b, 0)

/** Bytes of the file that one token needs. */
export const weightsRead = (config: Config.Config, weights: Weights.ModelWeights): number => {
  const { experts } = config
  const share = (ref: Weights.WeightRef): number => {
    const { shape, type } = ref.layout
    const whole = bytesOf(type, shape.toReversed()) as number
    if (/_exps\./.test(ref.name)) return whole * experts!.used / experts!.count
    // tied, the embedding is read whole as the output matrix
    return ref === weights.tokenEmbedding && ref !== weights.output ? whole / config.vocabulary : whole
  }
  const row = weights.tokenEmbedding === weights.output
    ? bytesOf(weights.output.layout.type, [config.embedding]) as number
    : 0
  return row + weights.all.reduce((bytes, ref) => bytes + share(ref), 0)
}

const summaries = (launches: ReadonlyArray<LaunchEstimate>): ReadonlyArray<KernelSummary> =>
  [...Map.groupBy(launches, ({ step }) => step.kind === "kernel" ? step.ast : step.name).values()].map((same) => {
    const { bytes, micros, step, threads, workgroups } = same[0]!
    return { name: step.name, calls: same.length, bytes, micros, workgroups, threads }
  })
