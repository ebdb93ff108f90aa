/** From a model file to sessions on a device, and again after the device was lost. */
import type { ByteSource } from "@tg/gguf/ByteSource"
import { Jit } from "@tg/jit/Jit"
import { NoPrediction } from "@tg/model-parts/Prediction"
import { Device, type DeviceError } from "@tg/runtime/Device"
import { type Context, Duration, Effect, Result, type Scope } from "effect"
import * as ActivationPolicy from "./ActivationPolicy.ts"
import { whileFilling } from "./Meanwhile.ts"
import * as Drafter from "./Drafter.ts"
import * as Growing from "./Growing.ts"
import { mostStep } from "./DraftLength.ts"
import * as Loader from "./Loader.ts"
import * as MemoryPlan from "./MemoryPlan.ts"
import type * as ModelFile from "./ModelFile.ts"
import * as ProgramMemo from "./ProgramMemo.ts"
import * as Prompts from "./Prompts.ts"
import * as Recovering from "./Recovering.ts"
import type * as Sampler from "./Sampler.ts"
import * as Services from "./Services.ts"
import * as Session from "./Session.ts"
import * as Speculation from "./Speculation.ts"
import type * as StepProgram from "./StepProgram.ts"

/** Why a model was not loaded. */
export type LoadError =
  | ModelFile.ModelError
  | Loader.LoadError
  | MemoryPlan.DoesNotFit
  | NoPrediction
  | Session.StepError

/**
 * What can be compiled ahead: the steps of a prompt, with logits of all tokens or of the last, and what `generate` repeats with
 * these settings.
 */
export type Program = StepProgram.Rows | Sampler.Settings

/** How to load a model. */
export interface Options extends Session.SessionOptions, Loader.LoadOptions {
  /** Compiled while the weights are on their way; without it, each program when it is first needed. */
  readonly prepare?: ReadonlyArray<Program> | undefined
  /** Makes another device when this one is lost, in a Scope of its own. Without it, a lost device is an error. */
  readonly rebuild?: Effect.Effect<Context.Context<Device | Jit>, DeviceError, Scope.Scope> | undefined
}

/** How long loading took, in milliseconds. Both were done at the same time. */
export interface LoadTimes {
  readonly weights: number
  readonly compile: number
}

/** A model on a device. */
export interface Loaded {
  /** A session whose programs are compiled as far as `prepare` says. */
  readonly first: Session.Session
  /** Another one over the same weights, with a cache of its own. Programs are shared. */
  readonly open: Effect.Effect<Session.Session, Session.StepError, Scope.Scope>
  readonly times: LoadTimes
}

/** How a model would run on the device at hand. */
export const settingOf: (
  model: ModelFile.ModelFile,
  options: Session.SessionOptions
) => Effect.Effect<MemoryPlan.Setting, Session.ContextFull | Session.InvalidTokens, Device | Jit> = Effect.fnUntraced(
  function*(model, options) {
    const { profile } = yield* Device
    const { estimate } = yield* Jit
    const { config } = model
    const context = Session.contextOf(config, options.context)
    if (typeof context !== "number") return yield* context
    const { activations: policy, batchFrom, chunk: asked, sizes } = options
    const shape = { asked, batchFrom, context, profile, sizes }
    const prompts = Prompts.promptShape(model, shape)
    const activations = ActivationPolicy.activationsOn(profile, policy)
    const { cache = "f16", predicts = false } = options
    const drafts = (yield* Drafter.Drafter) !== undefined
    return { activations, cache, context, drafts, estimate, predicts, profile, prompts }
  }
)

/**
 * The options with whether the model's prediction block is loaded, by the `Drafter` in force. One that is only welcome is left out where
 * the file has none, or the device no room for it.
 */
export const decided = <O extends Session.SessionOptions>(
  model: ModelFile.ModelFile,
  options: O
): Effect.Effect<O, LoadError, Device | Jit> =>
  Effect.gen(function*() {
    const wish = (yield* Drafter.Drafter)?.prediction
    if (options.predicts !== undefined || wish === undefined) return options
    const predicting = { ...options, predicts: true }
    const { prediction } = model
    if (prediction === undefined) {
      if (wish === "welcome") return options
      const found = `its family (${model.config.name}) knows no such blocks`
      return yield* new NoPrediction({ file: model.gguf.name, found })
    }
    if (wish === "needed") return yield* Effect.as(Effect.fromResult(prediction), predicting)
    if (Result.isFailure(prediction)) {
      // a block that is there and damaged is told of
      if (prediction.failure._tag === "WeightError") {
        yield* Effect.logWarning(`no drafts of the prediction block: ${prediction.failure.message}`)
      }
      return options
    }
    const checked = yield* Effect.result(MemoryPlan.check(model, yield* settingOf(model, predicting)))
    if (Result.isSuccess(checked)) return predicting
    yield* Effect.logWarning(`no drafts of the prediction block: ${checked.failure.message}`)
    return options
  })

/** The weights of a model as its file has them, with those of its prediction block if it predicts. */
export const wantedOf = (model: ModelFile.ModelFile, predicts = false): ReadonlyArray<Loader.Wanted> =>
  MemoryPlan.weightsOf(model, predicts).map(({ layout, name }) => ({
    layout,
    tensor: model.gguf.tensorsByName.get(name)!
  }))

/** Loads the weights of the source. What the device has no room for is refused before anything is read. */
export const load: (
  source: ByteSource["Service"],
  model: ModelFile.ModelFile,
  options: Options
) => Effect.Effect<Loaded, LoadError, Device | Jit | Scope.Scope> = Effect.fn("Loading.load")(
  function*(source, model, options) {
    const wanted = wantedOf(model, options.predicts)
    yield* MemoryPlan.check(model, yield* settingOf(model, options))
    const services = yield* Services.ofSessions
    const weights = yield* Loader.allocate(wanted)
    const programs = options.programs ?? ProgramMemo.make()
    const open = Growing.make(model, weights, { ...options, programs }).pipe(Effect.provide(services))
    const first = yield* open
    const drafter = yield* Drafter.Drafter
    const named = Effect.forEach(
      options.prepare ?? [],
      (program): Effect.Effect<unknown, Session.StepError> =>
        typeof program === "string" ? first.prepare(program) : first.prepareNext(program),
      { discard: true }
    )
    const compile = drafter === undefined || options.prepare === undefined
      ? named
      : Effect.andThen(named, first.prepareDrafts(mostStep))
    const [filling, compiling] = yield* whileFilling(Loader.fill(source, wanted, weights, options), compile)
    return { first, open, times: { weights: Duration.toMillis(filling), compile: Duration.toMillis(compiling) } }
  }
)

/** Drafts by the `Drafter` in force. */
export const speculation: Effect.Effect<Speculation.Speculation | undefined> = Effect.map(
  Drafter.Drafter,
  (drafter) => drafter === undefined ? undefined : Speculation.make(drafter)
)

/** The model on the device at hand; when that is lost, on what `rebuild` makes. */
export const home: (
  source: ByteSource["Service"],
  model: ModelFile.ModelFile,
  options: Options
) => Effect.Effect<Recovering.Home<Loaded>, LoadError, Device | Jit | Scope.Scope> = Effect.fnUntraced(
  function*(source, model, given) {
    const own = yield* Services.ofSessions
    const options = yield* decided(model, given)
    const { rebuild } = options
    const quiet: Options = { ...options, onProgress: undefined }
    return yield* Recovering.home(
      load(source, model, options).pipe(Effect.provide(own)),
      rebuild === undefined ? undefined : Effect.flatMap(
        rebuild,
        (services) => load(source, model, quiet).pipe(Effect.provide(services), Effect.provide(own))
      )
    )
  }
)
