/**
 * One conversation on a device: a cache of the tokens it has seen, and the step that appends more.
 *
 * The cache is only ever described by the list of tokens in it. A step is told the whole list it should end with and
 * processes what follows the longest common prefix, so a resent conversation costs only its last turn.
 */
import { Jit, type JitError, ownOf, type Prepared } from "@tg/jit/Jit"
import type { CacheType } from "@tg/model-parts/Halves"
import * as Order from "@tg/model-parts/Order"
import type { Activations } from "@tg/model-parts/Product"
import { Device, type DeviceBuffer, type DeviceError } from "@tg/runtime/Device"
import { Effect, Exit, Fiber, Scope, Semaphore } from "effect"
import { type ActivationPolicy, activationsOn } from "./ActivationPolicy.ts"
import { type Ahead, isSame, isSameSampling, stepsAhead } from "./Ahead.ts"
import * as CacheCopy from "./CacheCopy.ts"
import * as Draw from "./Draw.ts"
import * as HostInputs from "./HostInputs.ts"
import type { ModelFile } from "./ModelFile.ts"
import { defaultChunk, promptShape, tokensHeld } from "./Prompts.ts"
import * as ProgramMemo from "./ProgramMemo.ts"
import * as Random from "./Random.ts"
import * as Rings from "./Rings.ts"
import * as Sampler from "./Sampler.ts"
import { masked } from "./Shaping.ts"
import * as Tokens from "./Tokens.ts"
import { bytesOf, floatsOf, wordOf } from "./Words.ts"
import { cacheRows, decodeProgram, ids, type Rows, stepProgram, type StepShape, variablesOf } from "./StepProgram.ts"

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
}

/** Why a step failed. */
export type StepError = Tokens.ContextFull | Tokens.InvalidTokens | Sampler.InvalidLogits | DeviceError | JitError

/** A step of a prompt, to be measured. */
export interface PromptStep {
  readonly prepared: Prepared
  readonly vars: Readonly<Record<string, number>>
  /** Tokens it processes. */
  readonly length: number
}

/** What a session holds, off the device: its tokens, and their rows of each cache. */
export interface Snapshot {
  readonly tokens: ReadonlyArray<number>
  readonly rows: ReadonlyArray<Uint8Array>
  /** As in a session. */
  readonly forgotten: number
}

/** What another session begins with. */
export type Source = Pick<Session, "tokens" | "caches" | "forgotten">

/** A conversation on a device. */
export interface Session {
  readonly context: number
  readonly activations: Activations
  readonly vocabulary: number
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
  readonly chunk: number
  /** The buffers of the cache, one for each block. */
  readonly caches: ReadonlyArray<DeviceBuffer>
  /** Bytes that a token takes in each of them. */
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
  /** Compiles what `next` repeats with these settings. */
  readonly prepareNext: (sampling: Sampler.Settings) => Effect.Effect<void, StepError>
  /**
   * What `next` replays for a token, to measure it: `run` takes T = 1 and a startPos, and writes that place of the cache.
   * Nothing is known of the cache from there on, so a session that goes on is reset first. Where the context grows, it
   * is good for the size that the context has.
   */
  readonly decodeStep: Effect.Effect<Prepared, StepError>
  /**
   * What `advance` replays for the first piece of a prompt of so many tokens behind `start` others, and the variables it
   * runs with, to measure it: on the tokens of the last step, and with the cache as after `decodeStep`.
   */
  readonly promptStep: (start: number, length: number) => Effect.Effect<PromptStep, StepError>
}

/** Sets up a session over loaded weights. All its memory belongs to the Scope. */
export const make: (
  model: ModelFile,
  weights: ReadonlyMap<string, DeviceBuffer>,
  options?: SessionOptions
) => Effect.Effect<Session, StepError, Device | Jit | Scope.Scope> = Effect.fn(
  "Session.make"
)(
  function*(model, weights, options = {}) {
    const device = yield* Device
    const jit = yield* Jit
    const scope = yield* Effect.scope
    const { config } = model
    const context = Tokens.contextOf(config, options.context)
    if (typeof context !== "number") return yield* context
    const cache = options.cache ?? "f16"
    const activations = activationsOn(device.profile, options.activations)
    const programs = options.programs ?? ProgramMemo.make()
    const prompts = promptShape(config, {
      activations: options.activations,
      asked: options.chunk,
      batchFrom: options.batchFrom,
      context,
      profile: device.profile
    })
    const { batch, batchFrom, chunk, few } = prompts
    const most = tokensHeld(prompts)
    const tokenBuffer = yield* device.allocate(4 * most, "tokens")
    const inputs = yield* HostInputs.make(model, weights, most)
    const storage = model.caches({ type: cache, context: cacheRows(context) })
    const rowBytes = 4 * Number(storage[0]!.shape[1])
    const cacheBytes = storage.map(({ shape }) => rowBytes * Number(shape[0]))
    const cacheBuffers = yield* Effect.forEach(cacheBytes, (bytes, i) => device.allocate(bytes, `cache_${i}`))
    const ring = Rings.ringOf(storage)
    const rowsOf = (gone: number, count: number): CacheCopy.Rows => ({
      rows: storage.map((each) => Rings.rowsOf(each, gone, count)),
      rowBytes
    })
    const bound: ReadonlyArray<readonly [number, DeviceBuffer]> = [
      [ids.tokens, tokenBuffer],
      ...inputs.bound,
      ...cacheBuffers.map((b, i) => [ids.firstCache + i, b] as const),
      ...model.weights.all.map((ref, i) => [ids.firstCache + config.layers + i, weights.get(ref.name)!] as const)
    ]

    /** Compiles a variant when it is first asked for; what a failed attempt allocated is returned. */
    const variant = (shape: Pick<StepShape, "chunk" | "order" | "rows">) => {
      let made: { readonly prepared: Prepared; readonly logits: DeviceBuffer; readonly order: Order.Order } | undefined
      return Effect.fn("Session.prepare")(function*() {
        if (made !== undefined) return made
        const own = yield* Scope.fork(scope)
        const { chunk, order, rows } = shape
        const outputRows = rows === "last" ? 1 : order === "tokens" ? chunk : Order.wholeTiles(chunk)
        made = yield* Effect.gen(function*() {
          const logits = yield* device.allocate(4 * outputRows * config.vocabulary, `logits_${rows}`)
          const whole: StepShape = { ...shape, context, cache, activations }
          const program = programs(`step ${JSON.stringify(whole)}`, () => stepProgram(model, whole))
          const prepared = yield* jit.prepare(program.sink, new Map([...bound, [ids.logits, logits]]))
          return { prepared, logits, order }
        }).pipe(
          Scope.provide(own),
          Effect.onExit((exit) => Exit.isSuccess(exit) ? Effect.void : Scope.close(own, exit))
        )
        return made
      })
    }
    type Variant = ReturnType<typeof variant>
    const all = variant({ rows: "all", chunk, order: batchFrom <= chunk ? "features" : "tokens" })
    const last: { readonly batch: Variant; readonly few: Variant } = {
      batch: variant({ rows: "last", chunk: batch, order: "features" }),
      few: variant({ rows: "last", chunk: few, order: "tokens" })
    }
    // what a prompt of a few words needs
    const first = batchFrom > defaultChunk ? last.few : last.batch

    /** The token that decoding feeds, and leaves for the next step. */
    const decoded = yield* device.allocate(4, "next")

    /** Greedy decoding, compiled when it is first asked for. */
    const decoder = yield* Effect.cached(
      Effect.suspend(() =>
        jit.prepare(
          programs(`token ${context}`, () => decodeProgram(model, { cache, context, activations })).sink,
          new Map([...bound, [ids.next, decoded]])
        )
      ).pipe(Scope.provide(scope))
    )

    /** Decoding with a draw: a step that leaves logits, and what draws from them. */
    const drawer = yield* Effect.cached(
      Effect.gen(function*() {
        const logits = yield* device.allocate(4 * config.vocabulary, "logits_next")
        const program = programs(
          `logits ${context}`,
          () => decodeProgram(model, { cache, context, activations }, "logits")
        )
        const prepared = yield* jit.prepare(
          program.sink,
          new Map([...bound, [ids.next, decoded], [ids.logits, logits]])
        )
        const draw = yield* Draw.make({ logits, programs, token: decoded, vocabulary: config.vocabulary })
        return { prepared, draw }
      }).pipe(Scope.provide(scope), Effect.provideService(Device, device), Effect.provideService(Jit, jit))
    )

    let held: ReadonlyArray<number> = options.from?.tokens() ?? []
    let forgotten = options.from?.forgotten() ?? 0
    if (options.from !== undefined) {
      const rows = rowsOf(forgotten, held.length)
      yield* CacheCopy.copyRows(device, { from: options.from.caches, to: cacheBuffers }, rows)
    }
    let ahead: Ahead | undefined
    const lock = yield* Semaphore.make(1)

    /** Puts tokens behind the first `start` ones. */
    const step = Effect.fnUntraced(function*(
      { length, start }: { readonly start: number; readonly length: number },
      tokens: ReadonlyArray<number>,
      program: Variant
    ) {
      const { logits, order, prepared } = yield* program()
      ahead = undefined
      const whole = order === "tokens" ? length : Order.wholeTiles(length)
      const positions = Array.from({ length: whole }, (_, i) => start + i)
      // a tile that is not full repeats the last token; nobody looks at what becomes of it
      const tokenIds = positions.map((position) => tokens[Math.min(position, start + length - 1)]!)
      // until the step has succeeded, only what stands before it is certain
      held = tokens.slice(0, start)
      forgotten = Rings.afterStep(ring, forgotten, { start, tokens: whole })
      yield* device.write(tokenBuffer, bytesOf(Uint32Array.from(tokenIds)))
      yield* inputs.write(positions)
      yield* prepared.run(ownOf(prepared, variablesOf(order, start, length)))
      held = tokens.slice(0, start + length)
      return logits
    })

    const check = (tokens: ReadonlyArray<number>) => Tokens.invalid(tokens, config, context)

    /** Empties the cache: rows with NaN are multiplied by zero where nobody looks at them, and would make NaN of all that follows. */
    const refused = Effect.fnUntraced(function*(invalid: Sampler.InvalidLogits) {
      ahead = undefined
      held = []
      yield* Effect.forEach(cacheBuffers, (buffer, i) => device.write(buffer, new Uint8Array(cacheBytes[i]!)), {
        discard: true
      })
      return yield* invalid
    })

    /** The logits of tokens from `start` on, all of which are numbers. */
    const read = Effect.fnUntraced(function*(logits: DeviceBuffer, start: number, rows: number) {
      const values = floatsOf(yield* device.read(logits, 0, 4 * rows * config.vocabulary))
      const invalid = Sampler.invalidRow(values, config.vocabulary, start)
      return invalid === undefined ? values : yield* refused(invalid)
    })

    // the last token is processed again even if it is there: its logits are not kept
    const reusable = (tokens: ReadonlyArray<number>): number =>
      Rings.usable(ring, forgotten, Math.min(Tokens.commonPrefix(held, tokens), tokens.length - 1))

    const advance = (tokens: ReadonlyArray<number>) =>
      Effect.gen(function*() {
        const error = check(tokens)
        if (error !== undefined) return yield* error
        const kept = reusable(tokens)
        let logits: DeviceBuffer | undefined
        const isBatch = tokens.length - kept >= batchFrom
        for (const piece of Rings.pieces(kept, tokens.length - kept, { chunk: isBatch ? batch : few, ring })) {
          logits = yield* step(piece, tokens, isBatch ? last.batch : last.few)
          // between steps signals and other fibers get their turn
          yield* Effect.yieldNow
        }
        return yield* read(logits!, tokens.length - 1, 1)
      })

    /** Submits the step that feeds the token on the device, and a read of the token it leaves there. */
    const runAhead = Effect.fnUntraced(function*(state: Ahead) {
      const { position, sampling } = state
      forgotten = Rings.afterStep(ring, forgotten, { start: position, tokens: 1 })
      yield* inputs.write([position])
      if (Sampler.isGreedy(sampling)) yield* (yield* decoder).run({ startPos: position })
      else {
        const { draw, prepared } = yield* drawer
        const drawAt = yield* draw(sampling, "all")
        yield* prepared.run({ startPos: position })
        yield* drawAt(position + 1)
      }
      state.position++
      state.pending.push(
        yield* Effect.forkIn(Effect.map(device.read(decoded), wordOf), scope, { startImmediately: true })
      )
    })

    /** A device that computes while it is called has nothing to run ahead of, and one that cannot draw has no token to feed. */
    const runsAhead = (sampling: Sampler.Settings): boolean =>
      device.profile.kind === "gpu" && (Sampler.isGreedy(sampling) || Draw.fits(sampling, config.vocabulary))

    const prepareNext = Effect.fnUntraced(function*(sampling: Sampler.Settings) {
      if (!runsAhead(sampling)) yield* last.few()
      else if (Sampler.isGreedy(sampling)) yield* decoder
      else yield* (yield* drawer).draw(sampling, "all")
    })

    /** The host's draw. */
    const drawn = Effect.fnUntraced(function*(
      tokens: ReadonlyArray<number>,
      sampling: Sampler.Settings,
      mask: Uint32Array | undefined
    ) {
      const logits = yield* advance(tokens)
      const row = mask === undefined ? logits : masked(logits, mask)
      const id = Sampler.sample(row, sampling, Random.words(sampling.seed, tokens.length))
      return id ??
        (yield* new Sampler.InvalidLogits({ position: tokens.length - 1, vocab: config.vocabulary, bad: 0 }))
    })

    /** A token that the device has drawn behind a position. */
    const known = (id: number, position: number): Effect.Effect<number, StepError> =>
      id < config.vocabulary
        ? Effect.succeed(id)
        : refused(new Sampler.InvalidLogits({ position, vocab: config.vocabulary }))

    /** A step of decoding and a draw of what the mask allows, where the tokens in front of the last are there. */
    const maskedStep = Effect.fnUntraced(function*(
      tokens: ReadonlyArray<number>,
      sampling: Sampler.Settings,
      mask: Uint32Array
    ) {
      const position = tokens.length - 1
      const { draw, prepared } = yield* drawer
      const drawAt = yield* draw(sampling, "masked")
      ahead = undefined
      held = tokens.slice(0, position)
      forgotten = Rings.afterStep(ring, forgotten, { start: position, tokens: 1 })
      yield* device.write(decoded, bytesOf(Uint32Array.of(tokens[position]!)))
      yield* inputs.write([position])
      yield* prepared.run({ startPos: position })
      held = tokens
      yield* drawAt(tokens.length, mask)
      const id = wordOf(yield* device.read(decoded))
      return yield* known(id, position)
    })

    const next = Effect.fnUntraced(function*(
      tokens: ReadonlyArray<number>,
      sampling: Sampler.Settings,
      mask: Uint32Array | undefined
    ) {
      const error = check(tokens)
      if (error !== undefined) return yield* error
      if (mask !== undefined) {
        const isDecoding = tokens.length > 1 && reusable(tokens) === tokens.length - 1
        return yield* isDecoding && runsAhead(sampling)
          ? maskedStep(tokens, sampling, mask)
          : drawn(tokens, sampling, mask)
      }
      const running = ahead
      if (running === undefined || !isSame(running.tokens, tokens) || !isSameSampling(running.sampling, sampling)) {
        const first = yield* drawn(tokens, sampling, undefined)
        if (!runsAhead(sampling)) return first
        yield* device.write(decoded, bytesOf(Uint32Array.of(first)))
        ahead = { sampling, tokens: [...tokens, first], position: tokens.length, pending: [] }
        return first
      }
      while (running.pending.length < stepsAhead && running.position < context) yield* runAhead(running)
      // who is interrupted here and asks again gets the same token
      const id = yield* Fiber.join(running.pending[0]!)
      running.pending.shift()
      yield* known(id, tokens.length - 1)
      running.tokens.push(id)
      // every token whose step was submitted is in the cache, as far as it is known
      held = running.tokens.slice(0, running.position)
      return id
    })

    /**
     * Holds no tokens while something fills the cache, and then the first so many, if the next one can be computed behind them.
     * `source` says what is gone before it is copied, and after: it may be at work meanwhile.
     */
    const filled = Effect.fnUntraced(function*(
      source: { readonly tokens: () => ReadonlyArray<number>; readonly forgotten: () => number },
      count: number,
      fill: (rows: CacheCopy.Rows) => Effect.Effect<void, DeviceError>
    ) {
      const gone = source.forgotten()
      const tokens = source.tokens().slice(0, count)
      const error = tokens.length === 0 ? undefined : check(tokens)
      if (error !== undefined) return yield* error
      ahead = undefined
      held = []
      if (Rings.usable(ring, gone, tokens.length) === 0) return
      yield* fill(rowsOf(gone, tokens.length))
      // what the other one has replaced meanwhile may have been copied before or after
      const shared = Tokens.commonPrefix(tokens, source.tokens())
      forgotten = Math.max(gone, source.forgotten())
      held = tokens.slice(0, Rings.usable(ring, forgotten, shared))
    })

    return {
      context,
      activations,
      vocabulary: config.vocabulary,
      chunk,
      caches: cacheBuffers,
      tokens: () => held,
      forgotten: () => forgotten,
      reusable,
      advance: (tokens) => advance(tokens).pipe(lock.withPermits(1)),
      next: (tokens, sampling = Sampler.greedy, mask) => next(tokens, sampling, mask).pipe(lock.withPermits(1)),
      append: (tokens) =>
        Effect.gen(function*() {
          const whole = [...held, ...tokens]
          const error = check(tokens) ?? check(whole)
          if (error !== undefined) return yield* error
          if (tokens.length > chunk) {
            return yield* new Tokens.InvalidTokens({
              message: `${tokens.length} tokens were appended at once; the session takes up to ${chunk}`
            })
          }
          const rows = new Float32Array(tokens.length * config.vocabulary)
          const first = held.length
          for (const piece of Rings.pieces(first, tokens.length, { chunk, ring })) {
            const logits = yield* step(piece, whole, all)
            yield* Effect.yieldNow
            rows.set(yield* read(logits, piece.start, piece.length), (piece.start - first) * config.vocabulary)
          }
          return rows
        }).pipe(lock.withPermits(1)),
      rowBytes,
      adopt: (from, count) =>
        filled(
          from,
          count,
          (rows) => CacheCopy.copyRows(device, { from: from.caches, to: cacheBuffers }, rows)
        ).pipe(lock.withPermits(1)),
      snapshot: Effect.suspend(() => {
        const [tokens, gone] = [held, forgotten]
        const rows = CacheCopy.readRows(device, cacheBuffers, rowsOf(gone, tokens.length))
        return Effect.map(rows, (rows) => ({ tokens, rows, forgotten: gone }))
      }).pipe(lock.withPermits(1)),
      restore: (snapshot, count) =>
        filled(
          { tokens: () => snapshot.tokens, forgotten: () => snapshot.forgotten },
          count,
          (rows) => CacheCopy.writeRows(device, { from: snapshot.rows, to: cacheBuffers }, rows)
        ).pipe(lock.withPermits(1)),
      reset: Effect.sync(() => {
        held = []
        ahead = undefined
      }).pipe(lock.withPermits(1)),
      prepare: (rows) =>
        Effect.map((rows === "all" ? all : first)(), ({ prepared }) => prepared).pipe(lock.withPermits(1)),
      prepareNext: (sampling) => prepareNext(sampling).pipe(lock.withPermits(1)),
      decodeStep: Effect.suspend((): Effect.Effect<Prepared, StepError> =>
        device.profile.kind === "cpu" ? Effect.map(last.few(), ({ prepared }) => prepared) : decoder
      ).pipe(lock.withPermits(1)),
      promptStep: (start, asked) => {
        const isBatch = asked >= batchFrom
        const length = Rings.pieces(start, asked, { chunk: isBatch ? batch : few, ring })[0]?.length ?? 0
        return (isBatch ? last.batch : last.few)().pipe(
          Effect.map(({ order, prepared }) => ({ prepared, vars: variablesOf(order, start, length), length })),
          lock.withPermits(1)
        )
      }
    }
  }
)
