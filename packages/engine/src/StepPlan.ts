/** What one decode step will launch, read, allocate and take, without a device and without weights. */
import * as DType from "@tg/core-uop/DType"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { maxElements } from "@tg/core-uop/Shape"
import { bytesOf } from "@tg/gguf/GgufType"
import { estimate, type LaunchEstimate } from "@tg/jit/Estimate"
import * as Cache from "@tg/models-deepseek2/Cache"
import * as Config from "@tg/models-deepseek2/Config"
import * as Shapes from "@tg/models-deepseek2/Shapes"
import * as Weights from "@tg/models-deepseek2/Weights"
import * as Memory from "@tg/rangeify/Memory"
import { RangeifyError, schedule } from "@tg/rangeify/Rangeify"
import { Result } from "effect"
import * as Session from "./Session.ts"

/** A model as far as a plan needs it. */
export interface Model {
  readonly name: string
  readonly config: Config.Config
  readonly weights: Weights.ModelWeights
}

/** Why a shape is not a model: only unknown names reach users. */
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
  /** Tokens a step can process; the session's default. */
  readonly chunk?: number | undefined
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
  /** Memory that lives only during a step. */
  readonly scratchBytes: number
  /** Tokens, angles and logits. */
  readonly ioBytes: number
  /** Tensors that take more than one binding of the device. */
  readonly tensorsOverBinding: number
  readonly predictedMsPerToken: number
  /** In the order of their first launch. */
  readonly kernels: ReadonlyArray<KernelSummary>
}

/** Plans one decode step. */
export const plan = ({ config, name, weights }: Model, options: PlanOptions): StepPlan | RangeifyError => {
  const { cache, context, profile } = options
  const chunk = Math.min(options.chunk ?? defaultChunk, context)
  const program = Session.stepProgram({ config, weights }, { rows: "last", chunk, context, cache })
  const steps = schedule(program.sink, { maxStorageBuffers: profile.maxStorageBuffers })
  if (steps instanceof RangeifyError) return steps
  const launches = estimate(steps, profile, { T: 1, startPos: context - 1 })
  const sizes = new Map(program.buffers.map((b) => [b.label ?? "", DType.bytes(b.dtype) * maxElements(b.shape)]))
  const sum = (bytes: ReadonlyArray<number>): number => bytes.reduce((a, b) => a + b, 0)
  const kvBytes = sum([...sizes].flatMap(([label, bytes]) => label.startsWith("cache_") ? [bytes] : []))
  return {
    model: name,
    deviceProfile: profile.name,
    context,
    cache,
    dispatchesPerToken: launches.length,
    dispatchesPerLayer: Array.from(
      { length: config.layers },
      (_, i) => launches.filter(({ step }) => step.site?.split("/")[0] === `blk.${i}`).length
    ),
    bytesPerToken: weightsRead(config, weights),
    kvBytesPerToken: kvBytes,
    movedBytesPerToken: sum(launches.map((launch) => launch.bytes)),
    weightBytes: sum(weights.all.map(({ layout }) => 4 * layout.words)),
    kvBytes,
    scratchBytes: sum(Memory.planMemory(steps).blocks),
    ioBytes: sum(["tokens", "cos_sin", "logits"].map((label) => sizes.get(label)!)),
    tensorsOverBinding: weights.all.filter(({ layout }) => 4 * layout.words > profile.maxBindingBytes).length,
    predictedMsPerToken: sum(launches.map((launch) => launch.micros)) / 1000,
    kernels: summaries(launches)
  }
}

// What a session uses unless it is told otherwise.
const defaultChunk = 32

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
