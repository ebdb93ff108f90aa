/**
 * One conversation on a device: a cache of the tokens it has seen, and the step that appends more.
 *
 * The cache is only ever described by the list of tokens in it. A step is told the whole list it should end with and
 * processes what follows the longest common prefix, so a resent conversation costs only its last turn.
 *
 * A session is a state (`SessionState`) and functions that step it: `Steps`, `Decoding`, `Filling`.
 */
import { Jit, type Prepared } from "@tg/jit/Jit"
import type { CacheType } from "@tg/model-parts/Halves"
import type { Activations } from "@tg/model-parts/Product"
import { Device, type DeviceBuffer } from "@tg/runtime/Device"
import { Effect, type Scope, Semaphore } from "effect"
import { type ActivationPolicy, activationsOn } from "./ActivationPolicy.ts"
import * as Ahead from "./Ahead.ts"
import * as Decoding from "./Decoding.ts"
import * as Filling from "./Filling.ts"
import type { Snapshot, Source } from "./Filling.ts"
import * as HostInputs from "./HostInputs.ts"
import type { ModelFile } from "./ModelFile.ts"
import { promptShape, tokensHeld } from "./Prompts.ts"
import type * as Loader from "./Loader.ts"
import * as Predicting from "./Predicting.ts"
import * as PredictionPrograms from "./PredictionPrograms.ts"
import * as ProgramMemo from "./ProgramMemo.ts"
import * as Rings from "./Rings.ts"
import { firstGuesses } from "./RoundLength.ts"
import * as RoundPrograms from "./RoundPrograms.ts"
import * as Rounds from "./Rounds.ts"
import * as Sampler from "./Sampler.ts"
import * as SessionPrograms from "./SessionPrograms.ts"
import { type Ground, keep, reusable, rowBytes, type SessionState, type StepError } from "./SessionState.ts"
import { cacheRows, ids, type Rows, statesOf, variablesOf } from "./StepProgram.ts"
import * as Steps from "./Steps.ts"
import * as Tokens from "./Tokens.ts"
import * as Verifying from "./Verifying.ts"

export type { Snapshot, Source } from "./Filling.ts"
export type { StepError } from "./SessionState.ts"
export { commonPrefix, ContextFull, contextOf, defaultContext, InvalidTokens } from "./Tokens.ts"

/** How to set up a session. */
export interface SessionOptions {
  /** Storage of the cache; half precision by default. */
  readonly cache?: CacheType | undefined
  /** How products with quantised weights read activations; `auto` by default. */
  readonly activations?: ActivationPolicy | undefined
  /** Tokens the session can hold: the model's own limit by default, but at most `defaultContext`. */
  readonly context?: number | undefined
  /** Tokens processed at a time; as `promptShape` says if not given. */
  readonly chunk?: number | undefined
  /** Begin with what a session of the same model and kind of cache holds. */
  readonly from?: Source | undefined
  /** Programs that sessions share, so that each is scheduled and compiled once for all of them. */
  readonly programs?: ProgramMemo.ProgramMemo | undefined
  /** Tokens from which a prompt is a batch; as `promptShape` says. Where all logits are wanted, they are if a chunk is. */
  readonly batchFrom?: number | undefined
  /** Numbers of tokens that have a program of their own, rising; as `promptShape` says. */
  readonly sizes?: ReadonlyArray<number> | undefined
  /** Positions of the first range that has programs of its own, on a GPU; as `Spans` says. */
  readonly firstSpan?: number | undefined
  /** Whether the model's prediction block guesses tokens: its weights are among the loaded ones. It does not, if it is not said. */
  readonly predicts?: boolean | undefined
}

/** A step of a prompt, to be measured. */
export interface PromptStep {
  readonly prepared: Prepared
  readonly vars: Readonly<Record<string, number>>
  /** Tokens it processes. */
  readonly length: number
}

/** A conversation on a device. */
export interface Session {
  readonly context: number
  readonly activations: Activations
  readonly vocabulary: number
  /** What it draws with. */
  readonly sampler: Sampler.Drawing
  /** The tokens in the cache. */
  readonly tokens: () => ReadonlyArray<number>
  /** Positions before this one are gone from the caches of blocks with a window. */
  readonly forgotten: () => number
  /** How many of these tokens are there and need not be computed again to have the logits after the last. */
  readonly reusable: (tokens: ReadonlyArray<number>) => number
  /** Makes the session hold exactly these tokens; answers with the logits after the last. Steps do not overlap. */
  readonly advance: (tokens: ReadonlyArray<number>) => Effect.Effect<Float32Array, StepError>
  /**
   * The token after these by settings that are valid, the likeliest one by default: what `Sampler.sample` takes from the
   * logits of `advance`, with the random words of the place. Where the device works on its own, it draws too, and the
   * steps that follow are submitted before this one's token is known: asking for the token after it then waits for
   * less. With a mask, one bit per token, it is one of those in the mask, and nothing runs ahead.
   */
  readonly next: (
    tokens: ReadonlyArray<number>,
    sampling?: Sampler.Settings,
    mask?: Uint32Array
  ) => Effect.Effect<number, StepError>
  /** Appends up to `chunk` tokens; answers with the logits after each, `[tokens, vocabulary]`. */
  readonly append: (tokens: ReadonlyArray<number>) => Effect.Effect<Float32Array, StepError>
  /**
   * Makes the session hold these tokens and drafts behind them; answers with the logits after the last token and after each
   * draft, `[1 + drafts, vocabulary]`: those that `advance` gives, up to the rounding of another program.
   */
  readonly verify: (
    tokens: ReadonlyArray<number>,
    drafts: ReadonlyArray<number>
  ) => Effect.Effect<Float32Array, StepError>
  /**
   * The same, answering with the tokens that are drawn from these logits by the settings, as `next` draws them, `1 + drafts`: on a
   * device that draws, so that no logits are read. Nothing where the host draws, and nothing has been done.
   */
  readonly verifyDrawn: (
    tokens: ReadonlyArray<number>,
    drafts: ReadonlyArray<number>,
    sampling: Sampler.Settings
  ) => Effect.Effect<ReadonlyArray<number> | undefined, StepError>
  /**
   * Up to so many tokens that the model's prediction block guesses behind these; none where it is not loaded, or where the states
   * of the tokens in front of the last are not here.
   */
  readonly predict: (
    tokens: ReadonlyArray<number>,
    most: number
  ) => Effect.Effect<ReadonlyArray<number>, StepError>
  /**
   * A round of guesses that the device verifies, with the guesses of the next one, which it goes through meanwhile: `Rounds`. Nothing where it
   * does not.
   */
  readonly round: (
    tokens: ReadonlyArray<number>,
    asked: Rounds.Asked
  ) => Effect.Effect<Rounds.Round | undefined, StepError>
  /** Holds no more than the first so many tokens. */
  readonly keep: (count: number) => Effect.Effect<void>
  readonly chunk: number
  /** The buffers of the cache, one for each block; behind them the states, where they are kept. */
  readonly caches: ReadonlyArray<DeviceBuffer>
  /** Bytes that a token takes in each of those of blocks. */
  readonly rowBytes: number
  /**
   * Forgets its own tokens and begins with the first so many of another session of the same model and kind of cache; with none,
   * if that has forgotten what the next token would see.
   */
  readonly adopt: (from: Source, count: number) => Effect.Effect<void, StepError>
  /** The tokens and what the cache holds of them. */
  readonly snapshot: Effect.Effect<Snapshot, StepError>
  /** The same with a snapshot of the same model, kind of cache and activations. */
  readonly restore: (snapshot: Snapshot, count: number) => Effect.Effect<void, StepError>
  /** Forgets all tokens. */
  readonly reset: Effect.Effect<void>
  /** Compiles ahead of the first step. */
  readonly prepare: (rows: Rows) => Effect.Effect<Prepared, StepError>
  /** Compiles what `verify` runs, and `predict`; with settings, what `verifyDrawn` runs with them, too. */
  readonly prepareDrafts: (tokens: number, sampling?: Sampler.Settings) => Effect.Effect<void, StepError>
  /** Compiles what `next` repeats with these settings. */
  readonly prepareNext: (sampling: Sampler.Settings) => Effect.Effect<void, StepError>
  /**
   * What `next` replays for a token behind `start` others, to measure it: `run` takes T = 1 and a startPos, and writes that place of the cache.
   * Nothing is known of the cache from there on, so a session that goes on is reset first. Where the context grows, it
   * is good for the size that the context has.
   */
  readonly decodeStep: (start: number) => Effect.Effect<Prepared, StepError>
  /**
   * What `advance` replays for the first piece of a prompt of so many tokens behind `start` others, and the variables it
   * runs with, to measure it: on the tokens of the last step, and with the cache as after `decodeStep`.
   */
  readonly promptStep: (start: number, length: number) => Effect.Effect<PromptStep, StepError>
}

/** Memory and programs for a session over loaded weights. */
const groundOf = Effect.fnUntraced(
  function*(model: ModelFile, weights: Loader.Tensors, options: SessionOptions) {
    const device = yield* Device
    const { config } = model
    const context = Tokens.contextOf(config, options.context)
    if (typeof context !== "number") return yield* context
    const cache = options.cache ?? "f16"
    const activations = activationsOn(device.profile, options.activations)
    const prompts = promptShape(model, {
      asked: options.chunk,
      batchFrom: options.batchFrom,
      sizes: options.sizes,
      context,
      profile: device.profile
    })
    const most = tokensHeld(prompts)
    const tokens = yield* device.allocate(4 * most, "tokens")
    const inputs = yield* HostInputs.tables(model, weights, context)
    const { predicts = false } = options
    const blocks = model.caches({ type: cache, context: cacheRows(context) })
    const storage = [...blocks, ...predicts ? [statesOf(config, { cache, context })] : []]
    const caches = yield* Effect.forEach(
      storage,
      (each, i) => device.allocate(rowBytes(each) * Number(each.shape[0]), i < blocks.length ? `cache_${i}` : "states")
    )
    const decoded = yield* device.allocate(4, "next")
    const shape = { context, cache, activations, profile: device.profile }
    const memo = options.programs ?? ProgramMemo.make()
    const given = [[ids.tokens, tokens] as const, ...inputs.bound]
    const programs = yield* SessionPrograms.make({
      model,
      shape: { ...shape, states: predicts },
      within: { context, profile: device.profile, first: options.firstSpan },
      prompts,
      memo,
      decoded,
      bound: [
        ...given,
        ...caches.map((buffer, i) => [i < blocks.length ? ids.firstCache + i : ids.states, buffer] as const),
        ...model.weights.all.map((ref, i) => [ids.firstCache + config.layers + i, weights.get(ref.name)!] as const)
      ]
    })
    const ring = Rings.ringOf(storage)
    const states = caches.at(-1)!
    const setting = { model, weights, shape, prompts, memo, given, states }
    const prediction = predicts ? yield* PredictionPrograms.make(setting) : undefined
    const ground: Ground = {
      device,
      scope: yield* Effect.scope,
      model,
      context,
      activations,
      prompts,
      sampler: yield* Sampler.Sampler,
      storage,
      caches,
      prediction,
      // rows of a ring are not where tokens stand
      rounds: prediction === undefined || ring !== undefined || device.profile.kind !== "gpu"
        ? undefined
        : yield* RoundPrograms.make({
          ...setting,
          prediction,
          caches: blocks.map((_, i) => [ids.firstCache + i, caches[i]!] as const)
        }),
      ring,
      tokens,
      inputs,
      decoded,
      programs,
      together: yield* Ahead.StepsTogether,
      pace: new Ahead.Pace(),
      jit: yield* Jit
    }
    return ground
  }
)

/** What `promptStep` answers. */
const promptStep = (state: SessionState, start: number, asked: number): Effect.Effect<PromptStep, StepError> => {
  const { pieces, program } = Steps.prompt(state, { start, length: asked })
  const length = pieces[0]?.length ?? 0
  return Effect.map(
    program(start),
    ({ order, prepared }) => ({ prepared, vars: variablesOf(order, start, length), length })
  )
}

/** The session of a state: its steps, one at a time. */
const over = (state: SessionState, lock: Semaphore.Semaphore): Session => {
  const alone = lock.withPermits(1)
  const { activations, caches, context, device, model, programs, prompts, sampler, storage } = state
  const preparedOf = Effect.map(({ prepared }: SessionPrograms.Variant) => prepared)
  return {
    context,
    activations,
    vocabulary: model.config.vocabulary,
    sampler,
    chunk: prompts.chunk,
    caches,
    rowBytes: rowBytes(storage[0]!),
    tokens: () => state.held,
    forgotten: () => state.forgotten,
    reusable: (tokens) => reusable(state, tokens),
    advance: (tokens) => alone(Steps.advance(state, tokens)),
    next: (tokens, sampling = Sampler.greedy, mask) => alone(Decoding.next(state, { tokens, sampling, mask })),
    append: (tokens) => alone(Steps.append(state, tokens)),
    verify: (tokens, drafts) => alone(Verifying.verify(state, tokens, drafts)),
    verifyDrawn: (tokens, drafts, sampling) => alone(Verifying.verifyDrawn(state, tokens, drafts, sampling)),
    predict: (tokens, most) => alone(Predicting.predict(state, tokens, most)),
    round: (tokens, asked) => alone(Rounds.round(state, tokens, asked)),
    keep: (count) => alone(Effect.sync(() => keep(state, count))),
    adopt: (from, count) => alone(Filling.adopt(state, from, count)),
    snapshot: alone(Filling.snapshot(state)),
    restore: (snapshot, count) => alone(Filling.restore(state, snapshot, count)),
    reset: alone(Effect.sync(() => keep(state, 0))),
    prepare: (rows) =>
      alone(Effect.suspend(() => {
        const start = state.held.length
        return preparedOf(rows === "all" ? programs.all(prompts.chunk, start) : programs.first(start))
      })),
    prepareDrafts: (tokens, sampling) =>
      alone(Effect.all([
        Predicting.prepare(state, tokens),
        Verifying.prepareDrafts(state, tokens, sampling),
        Rounds.prepare(state, firstGuesses, sampling ?? Sampler.greedy)
      ], { discard: true })),
    prepareNext: (sampling) => alone(Decoding.prepare(state, sampling)),
    decodeStep: (start) =>
      alone(device.profile.kind === "cpu" ? preparedOf(programs.few(1, start)) : programs.decoder(start)),
    promptStep: (start, length) => alone(promptStep(state, start, length))
  }
}

/** Sets up a session over loaded weights. All its memory belongs to the Scope. */
export const make: (
  model: ModelFile,
  weights: Loader.Tensors,
  options?: SessionOptions
) => Effect.Effect<Session, StepError, Device | Jit | Scope.Scope> = Effect.fn("Session.make")(
  function*(model, weights, options = {}) {
    const ground = yield* groundOf(model, weights, options)
    const state: SessionState = { ...ground, held: [], forgotten: 0, ahead: undefined, running: undefined }
    const { from } = options
    if (from !== undefined) yield* Filling.adopt(state, from, from.tokens().length)
    return over(state, yield* Semaphore.make(1))
  }
)
