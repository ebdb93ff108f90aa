/** A loaded model whose conversations are computed in the same steps. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { ByteSource } from "@tg/gguf/ByteSource"
import { type Jit, ownOf, type Prepared } from "@tg/jit/Jit"
import type { Device, Vars } from "@tg/runtime/Device"
import { Duration, Effect, type Scope } from "effect"
import * as Batcher from "./Batcher.ts"
import { mostStep } from "./DraftLength.ts"
import * as Draw from "./Draw.ts"
import type * as Fair from "./Fair.ts"
import { whileFilling } from "./Meanwhile.ts"
import * as Loader from "./Loader.ts"
import * as Loading from "./Loading.ts"
import type * as MemoryPlan from "./MemoryPlan.ts"
import type * as ModelFile from "./ModelFile.ts"
import * as Pages from "./Pages.ts"
import * as Pool from "./Pool.ts"
import type { Draws } from "./PoolProgram.ts"
import * as PoolMemory from "./PoolMemory.ts"
import * as Random from "./Random.ts"
import * as Recovering from "./Recovering.ts"
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
  /** Conversations of full length that memory is taken for; `parallel` if it is not said. With fewer, some may have to give way. */
  readonly conversations?: number | undefined
  /** Who takes tokens from logits: the device, where it works on its own, if it is not said. */
  readonly draws?: Draws | undefined
  /** Conversations whose prompts share a batch, at most; as the device gains, if it is not said. */
  readonly inBatch?: number | undefined
}

/** A model whose conversations are computed in the same steps. */
export interface Parallel {
  readonly loadTimes: Loading.LoadTimes
  /** Tokens that a conversation may have. */
  readonly context: number
  /** A conversation, until the Scope is closed. */
  readonly join: Effect.Effect<Speculation.Steps, StepError, Scope.Scope>
  readonly counts: () => Batcher.Counts
  /**
   * What a step of so many conversations runs, each with a token behind `behind` others, to measure it: it runs on the tokens and places of the
   * last step, so of what pages hold nothing is known afterwards.
   */
  readonly step: (conversations: number, behind: number) => Effect.Effect<Step, StepError>
}

/** A step, to be measured. */
export interface Step {
  readonly prepared: Prepared
  readonly vars: Vars
  /** Tokens that it takes: where there are more conversations, they take turns. */
  readonly tokens: number
}

/** Tokens of prompts in a step while others write. */
const chunk = 16
/** Tokens of a step that holds nothing but prompts, where any number is possible. */
const mostPrompt = 64
/**
 * Tokens of a batch while others write, who wait for one between two of their tokens. On an H200 a session's batch of 128 tokens of
 * GLM-4.7-Flash took 70 ms, one of 512 148. A processor computes 64 tokens of a batch in the time of some 16 others.
 */
const beside = { gpu: 256, cpu: 64 } as const

/**
 * Conversations of a batch at most, and the positions of all of them: on a GPU a batch of a few tokens takes almost as long as a full one, but each
 * token looks at the positions of all conversations, also at those that it does not see. A processor gains nothing, and who comes first
 * waits for all.
 */
const usuallyInBatch = { gpu: 8, cpu: 1 } as const
const positionsInBatch = 1024

/** The model on a device, and what runs its steps. */
interface Loaded {
  readonly batcher: Batcher.Batcher
  readonly step: Parallel["step"]
  readonly times: Loading.LoadTimes
  readonly context: number
  readonly draws: Draws
}

/** Tokens that steps take: as many as programs are for, or any number. */
const stepsOf = (parallel: number, sizes: ReadonlyArray<number>): Pick<Pool.PoolOptions, "sizes" | "tokens"> => ({
  sizes,
  tokens: sizes.at(-1) ?? Math.max(mostPrompt, parallel + chunk, mostStep)
})

/** Batches of prompts as a session has them. */
const batchesOf = (
  { context, profile, prompts }: Pick<MemoryPlan.Setting, "context" | "profile" | "prompts">,
  { inBatch = usuallyInBatch[profile.kind], parallel }: Pick<Options, "inBatch" | "parallel">
): Pick<Pool.PoolOptions, "batch"> & Pick<Fair.Room, "batch"> => {
  const { batch: tokens, batchFrom: from } = prompts
  if (from === Infinity) return { batch: undefined }
  const asked = Math.min(parallel, inBatch)
  const most = prompts.sizes.find((size) => size >= asked) ?? prompts.sizes.at(-1) ?? asked
  const positions = Math.min(positionsInBatch, Pages.pagesFor(context) * Pages.pageTokens)
  return {
    batch: { from, tokens, rows: most, most, positions, beside: Math.min(tokens, beside[profile.kind]) }
  }
}

/** Who takes tokens from logits, if nobody says it: a device that works on its own. */
export const drawsOn = ({ kind }: Pick<DeviceProfile, "kind">): Draws => kind === "gpu" ? "device" : "host"

/** The pool of so many conversations, if the device has room for it. */
export const poolOf = (
  setting: Omit<MemoryPlan.Setting, "estimate">,
  { conversations, draws, inBatch, parallel }: Pick<Options, "conversations" | "inBatch" | "parallel"> & {
    readonly draws: Draws
  }
): Pool.PoolOptions & Pick<Fair.Room, "batch"> => {
  const { activations, cache, context } = setting
  return {
    activations,
    cache,
    context,
    draws,
    pages: Pages.pagesFor(context) * Math.max(1, conversations ?? parallel),
    ...batchesOf(setting, { inBatch, parallel }),
    ...stepsOf(parallel, setting.prompts.sizes)
  }
}

/** Loads the weights, and compiles meanwhile. */
const load = Effect.fn("Parallel.load")(
  function*(source: ByteSource["Service"], model: ModelFile.ModelFile, options: Options) {
    const setting = yield* Loading.settingOf(model, options)
    const { context, profile } = setting
    const { isOnDevice } = yield* Sampler.Sampler
    const { draws = isOnDevice ? drawsOn(profile) : "host", parallel } = options
    const asked = { ...poolOf(setting, { ...options, draws }), predicts: options.predicts }
    const pages = yield* PoolMemory.fitting(model, setting, asked)
    if (pages < asked.pages) {
      yield* Effect.logWarning(`the device has room for ${pages} of ${asked.pages} pages of ${Pages.pageTokens} tokens`)
    }
    const wanted = Loading.wantedOf(model, options.predicts)
    const weights = yield* Loader.allocate(wanted)
    const pool = yield* Pool.make(model, weights, { ...asked, pages })
    const compile = options.prepare === undefined ? Effect.void : pool.prepare(Math.min(parallel, asked.tokens))
    const [filling, compiling] = yield* whileFilling(Loader.fill(source, wanted, weights, options), compile)
    const loaded: Loaded = {
      batcher: yield* Batcher.make(pool, {
        context,
        pages: Pages.make(pages),
        room: { chunk, tokens: asked.tokens, costs: setting.prompts.costs, batch: asked.batch },
        vocabulary: model.config.vocabulary
      }),
      step: (conversations, behind) => {
        const tokens = Math.min(conversations, asked.tokens)
        const { given } = Pool.ringOf(asked)
        const vars = { T: tokens, R: tokens, pieces: Pages.pagesFor(behind + 1), drawn: given }
        return Effect.map(pool.prepare(tokens), (prepared) => ({ prepared, tokens, vars: ownOf(prepared, vars) }))
      },
      times: { weights: Duration.toMillis(filling), compile: Duration.toMillis(compiling) },
      context,
      draws
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

/** A conversation's steps. */
const stepsOver = Effect.fnUntraced(
  function*(home: Recovering.Home<Loaded>, { config }: ModelFile.ModelFile, context: number) {
    const scope = yield* Effect.scope
    const { ask, here: member } = yield* Recovering.resident(
      home,
      ({ value }) => Effect.map(Recovering.within(scope, value.batcher.join), ({ value }) => value)
    )
    const sampler = yield* Sampler.Sampler
    const { vocabulary } = config
    const rowsOf = (tokens: ReadonlyArray<number>, rows: number): Effect.Effect<Float32Array, StepError> =>
      Effect.suspend(() => Tokens.invalid(tokens, config, context) ?? ask(({ logits }) => logits(tokens, rows)))
    const isDrawnThere = (sampling: Sampler.Settings): boolean =>
      home.current().value.draws === "device" && Draw.fits(sampling, vocabulary)
    const steps: Speculation.Steps = {
      context,
      vocabulary,
      sampler,
      advance: (tokens) => rowsOf(tokens, 1),
      next: Effect.fnUntraced(function*(tokens, sampling = Sampler.greedy, mask) {
        if (isDrawnThere(sampling)) {
          const invalid = Tokens.invalid(tokens, config, context)
          return yield* invalid ?? ask(({ token }) => token(tokens, { sampling, mask }))
        }
        const row = yield* rowsOf(tokens, 1)
        const allowed = mask === undefined ? row : masked(row, mask)
        const id = sampler.sample(allowed, sampling, Random.words(sampling.seed, tokens.length))
        return id ?? (yield* new Sampler.InvalidLogits({ position: tokens.length - 1, vocab: vocabulary, bad: 0 }))
      }),
      verify: (tokens, drafts) => rowsOf([...tokens, ...drafts], 1 + drafts.length),
      verifyDrawn: Effect.fnUntraced(function*(tokens, drafts, sampling) {
        if (!isDrawnThere(sampling)) return undefined
        const all = [...tokens, ...drafts]
        const invalid = Tokens.invalid(all, config, context)
        return yield* invalid ?? ask((member) => member.tokens(all, 1 + drafts.length, { sampling }))
      }),
      predict: Effect.fnUntraced(function*(tokens, most) {
        const invalid = Tokens.invalid(tokens, config, context)
        return yield* invalid ?? ask((member) => member.predict(tokens, most))
      }),
      // where several conversations take their steps together, the host looks at each
      round: () => Effect.undefined,
      keep: (count) => Effect.sync(() => member()?.keep(count)),
      // steps of several tokens have the programs of several conversations
      prepareDrafts: () => Effect.void,
      reusable: (tokens) => member()?.reusable(tokens) ?? 0
    }
    return steps
  }
)

/** Loads the weights of a model whose header has been read. */
export const open: (
  source: ByteSource["Service"],
  model: ModelFile.ModelFile,
  options: Options
) => Effect.Effect<Parallel, Loading.LoadError, Device | Jit | Scope.Scope> = Effect.fn("Parallel.open")(
  function*(source, model, options) {
    const home = yield* homeOf(source, model, yield* Loading.decided(model, options))
    const sampler = yield* Sampler.Sampler
    const { context, times } = home.current().value
    return {
      loadTimes: times,
      context,
      join: Effect.provideService(stepsOver(home, model, context), Sampler.Sampler, sampler),
      counts: () => home.current().value.batcher.counts(),
      step: (...asked) => Effect.suspend(() => home.current().value.step(...asked))
    }
  }
)
