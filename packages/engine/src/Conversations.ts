/** Several conversations with one loaded model: each request goes on where the one it shares most with has come to. */
import { ByteSource } from "@tg/gguf/ByteSource"
import type { Jit } from "@tg/jit/Jit"
import type { Families } from "@tg/model-parts/Family"
import type { Device } from "@tg/runtime/Device"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Context, Effect, Exit, FiberSet, Layer, Option, type Scope, Semaphore, type Stream } from "effect"
import { generate } from "./Generate.ts"
import * as Loading from "./Loading.ts"
import * as MemoryPlan from "./MemoryPlan.ts"
import * as ModelFile from "./ModelFile.ts"
import * as Placement from "./Placement.ts"
import * as PrefixStore from "./PrefixStore.ts"
import * as Recovering from "./Recovering.ts"
import { type EngineError, type Request, type Token, validate } from "./Request.ts"
import type * as Session from "./Session.ts"
import * as Tokens from "./Tokens.ts"

/** Conversations that are kept unless it is said how many. */
export const usualConversations = 4

/** How to load a model for several conversations. */
export interface Options extends Loading.Options {
  /** Conversations that are kept, and can be answered at the same time; fewer where the device has no room for their caches. */
  readonly conversations?: number | undefined
}

/** An answer on its way. */
export interface Generation {
  readonly promptTokens: number
  /** Tokens of the prompt that were computed before, and are not computed again. */
  readonly cachedTokens: number
  /** To be run once, while the Scope is open. */
  readonly tokens: Stream.Stream<Token, EngineError>
}

/** How many conversations there are. */
export interface Status {
  /** Those that have caches, busy ones included. */
  readonly kept: number
  readonly busy: number
  /** The most that there can be. */
  readonly most: number
}

/** A model that keeps several conversations. */
export class Conversations extends Context.Service<Conversations, {
  readonly model: ModelFile.ModelFile
  readonly loadTimes: Loading.LoadTimes
  /** Tokens that a conversation may have. */
  readonly context: number
  readonly tokenizer: Effect.Effect<Codec>
  /**
   * Takes a conversation for the request, waiting for one if all are busy, until the Scope is closed; that ends the generation
   * within one token.
   */
  readonly generate: (request: Request) => Effect.Effect<Generation, EngineError, Scope.Scope>
  readonly status: Effect.Effect<Status>
}>()("@tg/engine/Conversations") {
  /** Loads the model of the byte source. With a `PrefixStore`, beginnings of conversations are found again in it. */
  static readonly layer = (
    options: Options = {}
  ): Layer.Layer<Conversations, Loading.LoadError, ByteSource | Device | Families | Jit> =>
    Layer.effect(
      Conversations,
      Effect.gen(function*() {
        const source = yield* ByteSource
        return yield* fromModel(source, yield* ModelFile.open(source), options)
      })
    )
}

/** A conversation and its place. */
interface Slot {
  /** Not there while it is being made. */
  session: Session.Session | undefined
  isBusy: boolean
  usedAt: number
}

/** What is done with conversations that nobody uses for the moment. */
interface Keeper {
  /** Tokens at the beginning of a prompt that could be fetched, and what fetches them. */
  readonly find: (tokens: ReadonlyArray<number>) => Effect.Effect<PrefixStore.Found | undefined>
  /** Keeps it, and says when the session may be used again. */
  readonly keep: (session: Session.Session, done: Effect.Effect<void>) => Effect.Effect<void>
}

/** Keeps nothing. */
const forgetful: Keeper = { find: () => Effect.undefined, keep: (_, done) => done }

/** Keeps in a store, in the background; what is under way when the Scope closes is finished first. */
const keeperOf = Effect.fnUntraced(function*(store: PrefixStore.PrefixStore["Service"], identity: string) {
  const running = yield* FiberSet.make<void>()
  yield* Effect.addFinalizer(() => FiberSet.awaitEmpty(running))
  const keep = (session: Session.Session, done: Effect.Effect<void>) =>
    Effect.gen(function*() {
      const tokens = session.tokens()
      const known = yield* store.find(identity, tokens)
      // a few more tokens are not worth writing all of them again
      if (tokens.length - (known?.shared ?? 0) < Placement.fewest) return yield* done
      const snapshot = yield* Effect.exit(session.snapshot)
      yield* done
      // a session that cannot be read says so to whoever asks it next
      if (Exit.isSuccess(snapshot)) yield* store.keep(identity, snapshot.value)
    })
  return {
    find: (tokens) => store.find(identity, tokens),
    keep: (session, done) => Effect.asVoid(FiberSet.run(running, keep(session, done)))
  } satisfies Keeper
})

/** Conversations that the device has room for, as far as it says what it has. */
const fitting = Effect.fnUntraced(function*(model: ModelFile.ModelFile, options: Options) {
  const asked = Math.max(1, Math.floor(options.conversations ?? usualConversations))
  const setting = yield* Loading.settingOf(model, options)
  const { memoryBytes } = setting.profile
  if (memoryBytes === undefined || asked === 1) return asked
  const { memory } = yield* MemoryPlan.whole(model, setting)
  // weights are there for all, and staging is over
  const each = MemoryPlan.mostBytes({ ...memory, weightBytes: 0, stagingBytes: 0 })
  const more = Math.floor((memoryBytes - MemoryPlan.mostBytes(memory)) / each)
  return Math.max(1, Math.min(asked, 1 + more))
})

/** The slots of a home: at most so many sessions, each of which one request has at a time. */
const makeSlots = Effect.fnUntraced(function*(home: Recovering.Home<Loading.Loaded>, most: number, keeper: Keeper) {
  const slots: Array<Slot> = []
  const turns = yield* Semaphore.make(most)
  let limit = most
  let clock = 0

  const open = (isFirst: boolean) =>
    Recovering.session(home, ({ first, open }) => isFirst ? Effect.succeed(first) : open)
  slots.push({ session: yield* open(true), isBusy: false, usedAt: 0 })

  const add = (): Slot => {
    const slot: Slot = { session: undefined, isBusy: false, usedAt: 0 }
    slots.push(slot)
    return slot
  }
  const remove = (slot: Slot): void => {
    const at = slots.indexOf(slot)
    if (at >= 0) slots.splice(at, 1)
  }

  /** A place for the prompt, taken at once. Whoever asks has one of `turns`, so there is one. */
  const take = (tokens: ReadonlyArray<number>, fetched: number) => {
    const kept = slots.map(({ isBusy, session, usedAt }): Placement.Kept => ({
      tokens: session?.tokens() ?? [],
      isBusy,
      usedAt
    }))
    // what can be fetched is worth more than what is there
    const best = Math.max(0, ...kept.map((each) => Tokens.commonPrefix(each.tokens, tokens)))
    const isFetched = fetched >= best + Placement.fewest
    const placed = Placement.place(kept, isFetched ? [] : tokens, { canOpen: slots.length < limit })
    if (placed === undefined) return undefined
    const slot = placed.place === Placement.another ? add() : slots[placed.place]!
    slot.isBusy = true
    const from = placed.kind === "branch" ? slots[placed.from]! : undefined
    return { slot, from, isFetched }
  }

  const giveBack = (slot: Slot) =>
    Effect.suspend(() => {
      const { session } = slot
      const done = Effect.suspend(() => {
        slot.isBusy = false
        slot.usedAt = ++clock
        if (session === undefined) remove(slot)
        return Effect.asVoid(turns.release(1))
      })
      return session === undefined ? done : keeper.keep(session, done)
    })

  /** Makes the session of a place that has none. */
  const sessionOf = Effect.fnUntraced(function*(slot: Slot) {
    slot.session ??= yield* open(false)
    return slot.session
  })

  /** Goes on with the conversations that there are. The turn of the one that found no room is not given back. */
  const lower = (slot: Slot): void => {
    remove(slot)
    limit = slots.length
  }
  const isGone = (slot: Slot): boolean => !slots.includes(slot)

  return { slots, turns, take, giveBack, sessionOf, lower, isGone, most: () => limit }
})

type Slots = Effect.Success<ReturnType<typeof makeSlots>>

/** A place for the prompt until the Scope closes. */
const takeTurn = ({ giveBack, isGone, take, turns }: Slots, tokens: ReadonlyArray<number>, fetched: number) =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function*() {
      yield* restore(turns.take(1))
      const taken = take(tokens, fetched)
      if (taken === undefined) return yield* Effect.die(new Error("more turns than conversations"))
      const { slot } = taken
      yield* Effect.addFinalizer(() => isGone(slot) ? Effect.void : giveBack(slot))
      return taken
    })
  )

/** A session for the prompt until the Scope closes, which holds as much of it as there is anywhere. */
const lease: (
  slots: Slots,
  keeper: Keeper,
  tokens: ReadonlyArray<number>
) => Effect.Effect<Session.Session, Session.StepError, Scope.Scope> = Effect.fnUntraced(
  function*(slots, keeper, tokens) {
    const found = yield* keeper.find(tokens)
    const { from, isFetched, slot } = yield* takeTurn(slots, tokens, found?.shared ?? 0)
    const made = yield* Effect.exit(slots.sessionOf(slot))
    if (Exit.isFailure(made)) {
      const error = Exit.findErrorOption(made)
      const isFull = Option.isSome(error) && error.value._tag === "DeviceError" && error.value.reason === "OutOfMemory"
      if (!isFull || slots.slots.length === 1) return yield* made
      yield* Effect.logWarning(`the device has no room for more than ${slots.slots.length - 1} conversations`)
      slots.lower(slot)
      return yield* lease(slots, keeper, tokens)
    }
    const session = made.value
    const source = from?.session
    if (source !== undefined) yield* session.adopt(source, Tokens.commonPrefix(source.tokens(), tokens))
    const snapshot = isFetched ? yield* found!.load : undefined
    if (snapshot !== undefined) yield* session.restore(snapshot, found!.shared)
    return session
  }
)

/** Loads the weights of a model whose header has been read. */
export const fromModel: (
  source: ByteSource["Service"],
  model: ModelFile.ModelFile,
  options?: Options
) => Effect.Effect<Conversations["Service"], Loading.LoadError, Device | Jit | Scope.Scope> = Effect.fn(
  "Conversations.load"
)(
  function*(source, model, given = {}) {
    const options = yield* Loading.decided(model, given)
    const home = yield* Loading.home(source, model, options)
    const { activations, context } = home.current().value.first
    const store = yield* Effect.serviceOption(PrefixStore.PrefixStore)
    const keeper = Option.isNone(store) ? forgetful : yield* keeperOf(
      store.value,
      yield* PrefixStore.identityOf(source, model, {
        activations,
        cache: `${options.cache ?? "f16"}${options.predicts === true ? " states" : ""}`
      })
    )
    const speculation = yield* Loading.speculation
    const slots = yield* makeSlots(home, yield* fitting(model, options), keeper)
    return Conversations.of({
      model,
      loadTimes: home.current().value.times,
      context,
      tokenizer: Effect.succeed(model.codec),
      generate: Effect.fn("Conversations.generate")(function*(request: Request) {
        const { tokens } = request
        const invalid = validate(request, model.config.vocabulary) ?? Tokens.invalid(tokens, model.config, context)
        if (invalid !== undefined) return yield* invalid
        const session = yield* lease(slots, keeper, tokens)
        let isOpen = true
        yield* Effect.addFinalizer(() => Effect.sync(() => isOpen = false))
        // whoever still reads has nothing to do with the session any more
        const whileOpen = <A>(step: Effect.Effect<A, Session.StepError>) =>
          Effect.suspend(() => isOpen ? step : Effect.interrupt)
        const { keep, next, reusable, sampler, vocabulary } = session
        const held = {
          context,
          vocabulary,
          sampler,
          advance: (all: ReadonlyArray<number>) => whileOpen(session.advance(all)),
          next: (...args: Parameters<typeof next>) => whileOpen(next(...args)),
          verify: (...args: Parameters<typeof session.verify>) => whileOpen(session.verify(...args)),
          verifyDrawn: (...args: Parameters<typeof session.verifyDrawn>) => whileOpen(session.verifyDrawn(...args)),
          predict: (...args: Parameters<typeof session.predict>) => whileOpen(session.predict(...args)),
          round: (...args: Parameters<typeof session.round>) => whileOpen(session.round(...args)),
          prepareDrafts: (...args: Parameters<typeof session.prepareDrafts>) =>
            whileOpen(session.prepareDrafts(...args)),
          keep: (count: number) => Effect.suspend(() => isOpen ? keep(count) : Effect.void),
          reusable
        }
        const cachedTokens = session.reusable(tokens)
        return {
          promptTokens: tokens.length,
          cachedTokens,
          tokens: generate(held, { codec: model.codec, request, speculation })
        }
      }),
      status: Effect.sync(() => ({
        kept: slots.slots.length,
        busy: slots.slots.filter(({ isBusy }) => isBusy).length,
        most: slots.most()
      }))
    })
  }
)
