/** What one decode step will launch, read, allocate and take, without a device and without weights. */
import * as Custom from "@tg/core-uop/Custom"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { key } from "@tg/core-uop/UOp"
import { bytesOf } from "@tg/gguf/GgufType"
import * as Barriers from "@tg/jit/Barriers"
import * as Persistent from "@tg/jit/Persistent"
import type * as Equal from "@tg/jit/Equal"
import * as Estimate from "@tg/jit/Estimate"
import type * as Pipeline from "@tg/jit/Pipeline"
import * as Stages from "@tg/jit/Stages"
import * as Family from "@tg/model-parts/Family"
import type { CacheType } from "@tg/model-parts/Halves"
import type { ConfigError } from "@tg/model-parts/Keys"
import * as Lowering from "@tg/model-parts/Lowering"
import * as Order from "@tg/model-parts/Order"
import type { Activations } from "@tg/model-parts/Product"
import type { UnknownShape } from "@tg/model-parts/Shape"
import type * as Weights from "@tg/model-parts/Weights"
import * as Explain from "@tg/rangeify/Explain"
import type { RangeifyError } from "@tg/rangeify/Rangeify"
import type { Slice } from "@tg/rangeify/Schedule"
import { Effect, Result } from "effect"
import type * as Loader from "./Loader.ts"
import * as MemoryPlan from "./MemoryPlan.ts"
import * as Packing from "./Packing.ts"
import * as PoolPlan from "./PoolPlan.ts"
import * as ActivationPolicy from "./ActivationPolicy.ts"
import * as Prompts from "./Prompts.ts"
import * as Session from "./Session.ts"
import * as Spans from "./Spans.ts"
import * as StepCost from "./StepCost.ts"
import * as StepProgram from "./StepProgram.ts"

/** A model as far as a plan needs it. */
export interface Model extends Family.Model {
  readonly name: string
}

/** Why there is no model: in practice, because the name is unknown. */
export type ShapeError = UnknownShape | ConfigError | Weights.WeightError

/** The model of a shape: `glm-4.7-flash:q4_0`. */
export const fromShape = (name: string, families: Family.Registry): Result.Result<Model, ShapeError> =>
  Result.gen(function*() {
    const { family, shape } = yield* Family.shapeOf(families, name)
    return { ...yield* family.modelOf(shape), name: shape.name }
  })

/** The situation to plan for. */
export interface PlanOptions {
  /** What would compile the step, for its device. */
  readonly pipeline: Pipeline.Stages
  /** Tokens the cache holds. */
  readonly context: number
  /** Tokens before the step's; by default all that the cache has room for, so that the step fills it. */
  readonly behind?: number | undefined
  readonly cache: CacheType
  /** `auto` by default. */
  readonly activations?: ActivationPolicy.ActivationPolicy | undefined
  /** Tokens a step can process; the session's default. */
  readonly chunk?: number | undefined
  /** Conversations in the same steps, whose pool is planned too; none if it is not said. */
  readonly parallel?: number | undefined
  /**
   * Whether steps verify drafts, and whether those are of the model's prediction block, which is then loaded. If it is not said, none in one conversation; in
   * a pool those of the block, where there is one.
   */
  readonly drafts?: "off" | "others" | "block" | undefined
  /** Whether kernels are compiled, up to their code, to count barriers in them. */
  readonly barriers?: boolean | undefined
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
export interface StepPlan extends MemoryPlan.Memory {
  readonly model: string
  readonly deviceProfile: string
  readonly context: number
  /** Tokens before the step's. */
  readonly behind: number
  readonly cache: CacheType
  readonly activations: Activations
  readonly dispatchesPerToken: number
  readonly dispatchesPerLayer: ReadonlyArray<number>
  /** Of each launch those that a workgroup comes to, `Barriers.count` and `countText`; not there if they are not asked for. */
  readonly barriersPerToken?: number
  /** Weights read: those of all tokens, the chosen experts' share, and one row of the embedding. */
  readonly bytesPerToken: number
  /** Cache that the step in the last place of the context reads. */
  readonly kvBytesPerToken: number
  /** Everything that the kernels read and write, caches and activations included. */
  readonly movedBytesPerToken: number
  /** All memory at the moment when it is most. */
  readonly memoryBytes: number
  /** Weights of the prediction block where it is not loaded, which are in no other number: only drafts of it load them. 0 where there is none. */
  readonly predictionBytes: number
  /** Of conversations in the same steps, the memory of their weights included; not there if they are not asked for. */
  readonly pool?: PoolPlan.PoolPlan
  /** What the device has, if that is known. */
  readonly deviceMemoryBytes: number | undefined
  /** Tensors that take more than one binding of the device. */
  readonly tensorsOverBinding: number
  readonly predictedMsPerToken: number
  /** In the order of their first launch. */
  readonly kernels: ReadonlyArray<KernelSummary>
  /** Why each kernel is there. */
  readonly explain: ReadonlyArray<Explain.ExplainedBody>
}

/** Why there is no plan. */
export type PlanError = Session.ContextFull | Session.InvalidTokens | RangeifyError | Stages.StageError

/** Plans the decode step of a session. */
export const plan = (
  model: Model,
  {
    activations: policy,
    barriers: counted = false,
    behind,
    cache,
    chunk: wanted,
    context: asked,
    drafts,
    parallel,
    pipeline
  }: PlanOptions
): Effect.Effect<StepPlan, PlanError> =>
  Effect.gen(function*() {
    const { config, name, weights } = model
    const { profile } = pipeline
    const context = Session.contextOf(config, asked)
    if (typeof context !== "number") return yield* context
    const startPos = behind ?? context - 1
    if (startPos >= context) {
      return yield* new Session.ContextFull({ asked: startPos + 1, limit: context, modelLimit: config.contextLength })
    }
    const prompts = Prompts.promptShape(model, { asked: wanted, context, profile })
    const activations = ActivationPolicy.activationsOn(profile, policy)
    const estimate: Loader.Estimating = (sink) => Estimate.estimate(pipeline, sink)
    const predicts = drafts === "block"
    const setting = { activations, cache, context, estimate, profile, prompts, predicts }
    const verifies = drafts !== undefined && drafts !== "off"
    const { decode, memory } = yield* MemoryPlan.whole(model, { ...setting, drafts: verifies }, startPos)
    const inPool = { ...setting, predicts: drafts === undefined ? MemoryPlan.hasPrediction(model) : predicts }
    const pool = parallel === undefined
      ? {}
      : { pool: yield* PoolPlan.plan(model, inPool, { behind: startPos, conversations: parallel }) }
    const vars: Estimate.Vars = { T: 1, startPos }
    const launches = yield* decode.launches(vars)
    const barriers = counted ? { barriersPerToken: yield* barriersOf(pipeline, launches, vars) } : {}

    return {
      model: name,
      deviceProfile: profile.name,
      context,
      behind: startPos,
      cache,
      activations,
      dispatchesPerToken: launches.length,
      dispatchesPerLayer: Array.from(
        { length: config.layers },
        (_, i) => launches.filter(({ step }) => step.site?.split("/")[0] === `blk.${i}`).length
      ),
      ...barriers,
      bytesPerToken: weightsRead(config, weights),
      kvBytesPerToken: memory.kvBytes,
      movedBytesPerToken: sum(launches.map((launch) => launch.bytes)),
      ...memory,
      memoryBytes: MemoryPlan.mostBytes(memory),
      predictionBytes: predicts
        ? 0
        : sum(MemoryPlan.predictionWeights(model).map(({ layout }) => 4 * layout.words)),
      ...pool,
      deviceMemoryBytes: profile.memoryBytes,
      tensorsOverBinding: weights.all.filter(({ layout }) => 4 * layout.words > profile.maxBindingBytes).length,
      predictedMsPerToken: sum(launches.map((launch) => launch.micros)) / 1000,
      kernels: summaries(launches),
      explain: Explain.byBody(launches.map(({ step }) => step))
    }
  }).pipe(Effect.provideService(Persistent.Slices, slicesOf(model, pipeline.profile)))

/** Weights of a model as slices of buffers, by the ids that a step has for them. */
export const slicesOf = ({ config, weights }: Model, profile: DeviceProfile): ReadonlyMap<number, Slice> => {
  const ids = new Map(weights.all.map(({ name }, i) => [name, StepProgram.ids.firstCache + config.layers + i]))
  const sizes = weights.all.map(({ layout, name }) => ({ name, bytes: 4 * layout.words }))
  return new Map(
    Packing.on(profile, sizes).flatMap(({ bytes, parts }, whole) =>
      parts.length === 1 ? [] : parts.map(({ name, offset }) => [ids.get(name)!, { whole, offset, bytes }] as const)
    )
  )
}

type Body = Equal.Chosen["bodies"][number]

/** The program of a range of token counts, and what the compiler chose in place of what was written. */
export interface EqualStep extends Pick<Equal.Chosen, "pieces"> {
  readonly bodies: ReadonlyArray<Omit<Body, "reasons"> & ReturnType<Body["reasons"]>>
  readonly step: "decode" | "few" | "prompt"
  /** The most tokens of the range. */
  readonly tokens: number
  /** Ways to compute the chosen experts of a block, the one that is taken first; none where there are no experts. */
  readonly experts: ReadonlyArray<Lowering.Lowering<Lowering.OfMixture>>
}

/** What the ways to compute a model's experts take, for so many tokens, the cheapest first. */
const expertsOf = (
  model: Model,
  profile: DeviceProfile,
  { step, tokens }: Pick<EqualStep, "step" | "tokens">
): EqualStep["experts"] => {
  const mixture = StepCost.mixtureOf(model)
  if (mixture === undefined) return []
  const isBatch = step === "prompt"
  // of a batch a model is given what it has room for
  const most = isBatch ? Lowering.usualTokens(Order.roomFor(tokens, profile), profile) : tokens
  return Lowering.ofMixture(mixture, { profile, isBatch, tokens: most }).toSorted((a, b) => a.micros - b.micros)
}

/** What the compiler chose behind so many tokens for each range of token counts that has a program: one token, a few of each size, and a prompt. */
export const equal = (
  model: Model,
  { activations: policy, behind, cache, context, pipeline }: Pick<
    PlanOptions,
    "activations" | "behind" | "cache" | "context" | "pipeline"
  >
): Effect.Effect<ReadonlyArray<EqualStep>, RangeifyError> => {
  const { profile } = pipeline
  const { batch, batchFrom, few, sizes } = Prompts.promptShape(model, { asked: undefined, context, profile })
  const size = {
    activations: ActivationPolicy.activationsOn(profile, policy),
    cache,
    context,
    profile,
    rows: "last"
  } as const
  const spanOf = (chunk: number) => Spans.at(behind ?? context - 1, { ...size, chunk })
  const isWhole = sizes.length > 0
  // each number of tokens that has a program is a range of its own: of one token the program that decodes is told of
  const fews = isWhole ? sizes.filter((tokens) => tokens > 1 && tokens <= few) : [few]
  const steps = [
    ...profile.kind === "gpu"
      ? [
        {
          step: "decode",
          tokens: 1,
          sink: StepProgram.decodeProgram(model, { ...size, span: spanOf(1) }).sink
        } as const
      ]
      : [],
    ...fews.map((tokens) =>
      ({
        step: "few",
        tokens,
        sink: StepProgram.stepProgram(model, { ...size, chunk: tokens, isWhole, order: "tokens", span: spanOf(tokens) })
          .sink
      }) as const
    ),
    ...batchFrom === Infinity ? [] : [
      {
        step: "prompt",
        tokens: batch,
        sink: StepProgram.stepProgram(model, { ...size, chunk: batch, order: "features" }).sink
      } as const
    ]
  ]
  return Effect.forEach(
    steps,
    ({ sink, ...step }) =>
      Effect.map(pipeline.equal(sink), ({ bodies, pieces }) => ({
        ...step,
        bodies: bodies.map(withReasons),
        pieces,
        experts: expertsOf(model, profile, step)
      }))
  )
}

const withReasons = ({ reasons, ...body }: Body): EqualStep["bodies"][number] => ({ ...body, ...reasons() })

/** Barriers of all launches. Equal kernels are compiled once, up to the code; of those written by hand the text is read. */
export const barriersOf = (
  pipeline: Pipeline.Stages,
  launches: ReadonlyArray<Pick<Estimate.LaunchEstimate, "step">>,
  vars: Estimate.Vars
): Effect.Effect<number, Stages.StageError> =>
  Effect.gen(function*() {
    const known = new Map<string, number>()
    let barriers = 0
    for (const { step } of launches) {
      if (step.kind === "custom") {
        const source = Custom.of(step.custom).sources.get(pipeline.caps.target)
        barriers += source === undefined ? 0 : Barriers.countText(source)
        continue
      }
      const text = key(step.ast)
      const own = known.get(text) ??
        Barriers.count((yield* Stages.ofKernel(pipeline, step.name, step.ast)).linear, vars)
      known.set(text, own)
      barriers += own
    }
    return barriers
  })

const sum = (values: ReadonlyArray<number>): number => values.reduce((a, b) => a + b, 0)

/** Bytes of the file that one token needs. */
export const weightsRead = (config: Family.ModelConfig, weights: Weights.ModelWeights): number => {
  const { experts } = config
  const share = (ref: Weights.WeightRef): number => {
    const { shape, type } = ref.layout
    const whole = bytesOf(type, shape.toReversed()) as number
    if (StepCost.isOfExperts(ref)) return whole * experts!.used / experts!.count
    // tied, the embedding is read whole as the output matrix
    return ref === weights.tokenEmbedding && ref !== weights.output ? whole / config.vocabulary : whole
  }
  const row = weights.tokenEmbedding === weights.output
    ? bytesOf(weights.output.layout.type, [config.embedding]) as number
    : 0
  return row + weights.all.reduce((bytes, ref) => bytes + share(ref), 0)
}

const summaries = (launches: ReadonlyArray<Estimate.LaunchEstimate>): ReadonlyArray<KernelSummary> =>
  [...Map.groupBy(launches, ({ step }) => step.kind === "kernel" ? key(step.ast) : step.name).values()].map((same) => {
    const { bytes, micros, step, threads, workgroups } = same[0]!
    return { name: step.name, calls: same.length, bytes, micros, workgroups, threads }
  })
