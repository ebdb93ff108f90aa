/** Several conversations with one loaded model, whose tokens are computed in the same steps. */
import type { ByteSource } from "@tg/gguf/ByteSource"
import { ByteSource as Source } from "@tg/gguf/ByteSource"
import type { Jit } from "@tg/jit/Jit"
import type { Families } from "@tg/model-parts/Family"
import { Device } from "@tg/runtime/Device"
import { Duration, Effect, Layer, type Scope, Semaphore } from "effect"
import * as Batcher from "./Batcher.ts"
import { Conversations, type Generation } from "./Conversations.ts"
import { mostStep } from "./DraftLength.ts"
import { generate } from "./Generate.ts"
import * as Loader from "./Loader.ts"
import * as Loading from "./Loading.ts"
import * as ModelFile from "./ModelFile.ts"
import * as Pages from "./Pages.ts"
import * as Pool from "./Pool.ts"
import { piecesOf } from "./PoolProgram.ts"
import * as Random from "./Random.ts"
import * as Recovering from "./Recovering.ts"
import { type EngineError, type Request, validate } from "./Request.ts"
import * as Sampler from "./Sampler.ts"
import * as Services from "./Services.ts"
import type { StepError } from "./Session.ts"
import { masked } from "./Shaping.ts"
import type * as Speculation from "./Speculation.ts"
import * as Tokens from "./Tokens.ts"

/** How to load a model for conversations in one step. */
export interface Options extends Loading.Options {
  /** Conversations that are answered at the same time. */
  readonly parallel: number
  /** Conversations of full length that memory is taken for; `parallel` if it is not said. With less, some may have to give way. */
  readonly conversations?: number | undefined
}

/** Tokens of prompts in a step while others write. */
const chunk = 16
/** Tokens of a step that holds nothing but prompts, where any number is possible. */
const mostPrompt = 64

/** The model on a device, and what runs its steps. */
interface Loaded {
  readonly batcher: Batcher.Batcher
  readonly times: Loading.LoadTimes
  readonly context: number
}

/** Tokens that steps take: as many as programs are for, or any number. */
const stepsOf = (parallel: number, sizes: ReadonlyArray<number>): Pick<Pool.PoolOptions, "sizes" | "tokens"> =>
  sizes.length === 0
    ? { sizes, tokens: Math.max(mostPrompt, parallel + chunk, mostStep) }
    : { sizes, tokens: sizes.at(-1)! }

/** Loads the weights, and compiles meanwhile. */
const load = Effect.fn("Parallel.load")(
  function*(source: ByteSource["Service"], model: ModelFile.ModelFile, options: Options) {
    const { activations, cache, context, prompts } = yield* Loading.settingOf(model, options)
    const { parallel } = options
    const pages = piecesOf(context) * Math.max(1, options.conversations ?? parallel)
    const wanted = model.weights.all.map(({ layout, name }) => ({
      layout,
      tensor: model.gguf.tensorsByName.get(name)!
    }))
    const weights = yield* Loader.allocate(wanted)
    const steps = stepsOf(parallel, prompts.sizes)
    const pool = yield* Pool.make(model, weights, { activations, cache, context, pages, ...steps })
    const compile = options.prepare === undefined ? Effect.void : pool.prepare(Math.min(parallel, steps.tokens))
    const [[filling], [compiling]] = yield* Effect.all([
      Effect.timed(Loader.fill(source, wanted, weights, options)),
      Effect.timed(compile)
    ], { concurrency: 2 })
    const loaded: Loaded = {
      batcher: yield* Batcher.make(pool, {
        pages: Pages.make(pages),
        room: { chunk, tokens: steps.tokens },
        vocabulary: model.config.vocabulary
      }),
      times: { weights: Duration.toMillis(filling), compile: Duration.toMillis(compiling) },
      context
    }
    return loaded
  }
)

/** The model on the device at hand; when that is lost, on what `rebuild` makes. */
const homeOf = Effect.fnUntraced(
  function*(source: ByteSource["Service"], model: ModelFile.ModelFile, options: Options) {
    const own = yield* Services.ofSessions
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

/** A conversation's steps, wherever the home stands, until the Scope is closed. */
const memberOf = Effect.fnUntraced(
  function*(home: Recovering.Home<Loaded>, { config }: ModelFile.ModelFile, context: number) {
    const scope = yield* Effect.scope
    const sampler = yield* Sampler.Sampler
    const { vocabulary } = config
    const joined = () =>
      Effect.map(Recovering.within(scope, home.current().value.batcher.join), ({ value }) => ({
        standing: home.current(),
        member: value
      }))
    let own = yield* joined()
    const here = Effect.suspend(() =>
      own.standing === home.current() ? Effect.succeed(own) : Effect.map(joined(), (found) => own = found)
    )
    const ask = (tokens: ReadonlyArray<number>, rows: number): Effect.Effect<Float32Array, StepError> =>
      Effect.flatMap(here, ({ member, standing }) =>
        member.logits(tokens, rows).pipe(
          Effect.catchIf(Recovering.isLost, (error) =>
            Effect.andThen(
              home.rebuild(standing, error),
              Effect.flatMap(here, ({ member }) => member.logits(tokens, rows))
            ))
        ))
    const logits = (tokens: ReadonlyArray<number>, rows: number): Effect.Effect<Float32Array, StepError> =>
      Effect.suspend(() => Tokens.invalid(tokens, config, context) ?? ask(tokens, rows))
    const steps: Speculation.Steps = {
      context,
      vocabulary,
      sampler,
      advance: (tokens) => logits(tokens, 1),
      next: Effect.fnUntraced(function*(tokens, sampling = Sampler.greedy, mask) {
        const row = yield* logits(tokens, 1)
        const allowed = mask === undefined ? row : masked(row, mask)
        const id = sampler.sample(allowed, sampling, Random.words(sampling.seed, tokens.length))
        return id ?? (yield* new Sampler.InvalidLogits({ position: tokens.length - 1, vocab: vocabulary, bad: 0 }))
      }),
      verify: (tokens, drafts) => logits([...tokens, ...drafts], 1 + drafts.length),
      keep: (count) => Effect.sync(() => own.member.keep(count)),
      prepareDrafts: () => Effect.void,
      reusable: (tokens) => own.standing === home.current() ? own.member.reusable(tokens) : 0
    }
    return steps
  }
)

/** Loads the weights of a model whose header has been read. */
export const fromModel: (
  source: ByteSource["Service"],
  model: ModelFile.ModelFile,
  options: Options
) => Effect.Effect<Conversations["Service"], Loading.LoadError, Device | Jit | Scope.Scope> = Effect.fn(
  "Parallel.fromModel"
)(
  function*(source, model, options) {
    const { parallel } = options
    const home = yield* homeOf(source, model, options)
    const { context, times } = home.current().value
    const speculation = yield* Loading.speculation
    const places = yield* Semaphore.make(parallel)
    let busy = 0
    const place = Effect.acquireRelease(
      Effect.tap(places.take(1), () => Effect.sync(() => busy++)),
      () => Effect.andThen(Effect.sync(() => busy--), places.release(1)),
      { interruptible: true }
    )
    return Conversations.of({
      model,
      loadTimes: times,
      context,
      tokenizer: Effect.succeed(model.codec),
      generate: Effect.fn("Parallel.generate")(
        function*(request: Request): Effect.fn.Return<Generation, EngineError, Scope.Scope> {
          const { tokens } = request
          const invalid = validate(request, model.config.vocabulary) ?? Tokens.invalid(tokens, model.config, context)
          if (invalid !== undefined) return yield* invalid
          yield* place
          const steps = yield* memberOf(home, model, context)
          return {
            promptTokens: tokens.length,
            cachedTokens: steps.reusable(tokens),
            tokens: generate(steps, { codec: model.codec, request, speculation })
          }
        }
      ),
      status: Effect.sync(() => ({ kept: busy, busy, most: parallel }))
    })
  }
)

/** Loads the model of the byte source. */
export const layer = (
  options: Options
): Layer.Layer<Conversations, Loading.LoadError, Source | Device | Families | Jit> =>
  Layer.effect(
    Conversations,
    Effect.gen(function*() {
      const source = yield* Source
      return yield* fromModel(source, yield* ModelFile.open(source), options)
    })
  )
