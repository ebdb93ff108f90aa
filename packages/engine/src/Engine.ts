/** A loaded model that generates text: the service that commands and servers use. */
import { ByteSource } from "@tg/gguf/ByteSource"
import { Jit } from "@tg/jit/Jit"
import { Device, type DeviceError } from "@tg/runtime/Device"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import type { TokenizerError } from "@tg/tokenizer/TokenizerError"
import { Context, Duration, Effect, Layer, type Scope, Stream } from "effect"
import { generate } from "./Generate.ts"
import * as Growing from "./Growing.ts"
import * as Loader from "./Loader.ts"
import * as MemoryPlan from "./MemoryPlan.ts"
import * as ModelFile from "./ModelFile.ts"
import * as Recovering from "./Recovering.ts"
import type { EngineError, Request, Token } from "./Request.ts"
import type * as Sampler from "./Sampler.ts"
import * as ActivationPolicy from "./ActivationPolicy.ts"
import * as Prompts from "./Prompts.ts"
import type * as StepProgram from "./StepProgram.ts"
import * as Session from "./Session.ts"

export type { Constraint } from "./Constraint.ts"
export { InvalidRequest, type Likelihood, NothingAllowed, type Penalties } from "./Request.ts"
export type { EngineError, Request, Token } from "./Request.ts"

/** Why a model was not loaded. */
export type LoadError = ModelFile.ModelError | Loader.LoadError | MemoryPlan.DoesNotFit | Session.StepError

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
  /** The model's tokenizer, where it has been made; without it, it is made when it is first needed. */
  readonly tokenizer?: Codec | undefined
}

/** How long loading took, in milliseconds. Both were done at the same time. */
export interface LoadTimes {
  readonly weights: number
  readonly compile: number
}

/** A model on a device, with one conversation in its cache. */
export class Engine extends Context.Service<Engine, {
  readonly model: ModelFile.ModelFile
  readonly loadTimes: LoadTimes
  /** The steps behind `generate` and `logits`, to measure them one by one. It is the same conversation. */
  readonly session: Session.Session
  /** Tokens that a conversation may have. */
  readonly context: number
  readonly tokenizer: Effect.Effect<Codec, TokenizerError>
  /**
   * Continues the prompt. What the cache shares with the prompt's beginning is not computed again. Ends with `stop: "context"`
   * when another token would not fit; a prompt that does not fit is `ContextFull`.
   */
  readonly generate: (request: Request) => Stream.Stream<Token, EngineError>
  /** The logits after each token, `[n, vocabulary]` at a time. Starts with an empty cache. */
  readonly logits: (tokens: ReadonlyArray<number>) => Stream.Stream<Float32Array, EngineError>
  /** Compiles what `generate` (last) or `logits` (all) run, before their first step needs it. */
  readonly prepare: (rows: StepProgram.Rows) => Effect.Effect<void, EngineError>
  /** The tokens in the cache. */
  readonly cached: Effect.Effect<ReadonlyArray<number>>
  /** Empties the cache. */
  readonly reset: Effect.Effect<void>
}>()("@tg/engine/Engine") {
  /** Loads the model of the byte source. */
  static readonly layer = (options: Options = {}): Layer.Layer<Engine, LoadError, ByteSource | Device | Jit> =>
    Layer.effect(
      Engine,
      Effect.gen(function*() {
        const source = yield* ByteSource
        const model = yield* ModelFile.open(source)
        return yield* fromModel(source, model, options)
      })
    )
}

/** A session over the weights of the source, and how long it took. */
const start = Effect.fn("Engine.start")(
  function*(source: ByteSource["Service"], model: ModelFile.ModelFile, options: Options) {
    const wanted = model.weights.all.map(({ layout, name }) => ({
      layout,
      tensor: model.gguf.tensorsByName.get(name)!
    }))
    yield* checkMemory(model, options)
    const weights = yield* Loader.allocate(wanted)
    const session = yield* Growing.make(model, weights, options)
    const compile = Effect.forEach(
      options.prepare ?? [],
      (program): Effect.Effect<unknown, Session.StepError> =>
        typeof program === "string" ? session.prepare(program) : session.prepareNext(program),
      { discard: true }
    )
    const [[filling], [compiling]] = yield* Effect.all([
      Effect.timed(Loader.fill(source, wanted, weights, options)),
      Effect.timed(compile)
    ], { concurrency: 2 })
    const times: LoadTimes = { weights: Duration.toMillis(filling), compile: Duration.toMillis(compiling) }
    return { session, times }
  }
)

/** Refuses what the device has no room for, before anything is read. */
const checkMemory = Effect.fnUntraced(function*(model: ModelFile.ModelFile, options: Options) {
  const { profile } = yield* Device
  const { config } = model
  const context = Session.contextOf(config, options.context)
  if (typeof context !== "number") return yield* context
  const { batchFrom, chunk: asked } = options
  const prompts = Prompts.promptShape(config, { activations: options.activations, asked, batchFrom, context, profile })
  const activations = ActivationPolicy.activationsOn(profile, options.activations)
  const cache = options.cache ?? "f16"
  yield* Effect.fromResult(MemoryPlan.check(model, { activations, cache, context, profile, prompts }))
})

/** Loads the weights of a model whose header has been read. */
export const fromModel = Effect.fn("Engine.load")(function*(
  source: ByteSource["Service"],
  model: ModelFile.ModelFile,
  options: Options = {}
) {
  const { rebuild } = options
  // without the Scope: a session that can be replaced has its own
  const device = Context.pick(Device, Jit)(yield* Effect.context<Device | Jit>())
  let loadTimes: LoadTimes | undefined
  const first = start(source, model, options).pipe(
    Effect.provide(device),
    Effect.map(({ session, times }) => {
      loadTimes = times
      return session
    })
  )
  const again = (made: NonNullable<typeof rebuild>) =>
    Effect.flatMap(
      made,
      (services) => start(source, model, { ...options, onProgress: undefined }).pipe(Effect.provide(services))
    ).pipe(
      Effect.map(({ session }) => session)
    )
  const session = rebuild === undefined ? yield* first : yield* Recovering.make(first, again(rebuild))
  const made = options.tokenizer
  const tokenizer = made === undefined
    ? yield* Effect.cached(Effect.suspend(() => Effect.fromResult(ModelFile.tokenizer(model.gguf))))
    : Effect.succeed(made)
  return Engine.of({
    model,
    loadTimes: loadTimes!,
    session,
    context: session.context,
    tokenizer,
    generate: (request) => Stream.unwrap(Effect.map(tokenizer, (codec) => generate(session, codec, request))),
    logits: (tokens) => logits(session, tokens),
    prepare: (rows) => Effect.asVoid(session.prepare(rows)),
    cached: Effect.sync(session.tokens),
    reset: session.reset
  })
})

const logits = (
  session: Session.Session,
  tokens: ReadonlyArray<number>
): Stream.Stream<Float32Array, EngineError> => {
  const check = tokens.length > session.context
    // refuse before the first row, not after the context's last
    ? Effect.asVoid(session.advance(tokens))
    : session.reset
  const rows = Stream.fromIterable(Prompts.pieces(0, tokens.length, session.chunk)).pipe(
    Stream.mapEffect(({ length, start }) => session.append(tokens.slice(start, start + length)))
  )
  return Stream.concat(Stream.fromEffectDrain(check), rows)
}
