/**
 * A session whose context grows: when it is full, one of twice the size takes over what its cache holds, up to what the model
 * allows. Kernels are compiled once for each size, and most of them, which do not depend on it, only once.
 */
import type { Jit } from "@tg/jit/Jit"
import type { Device } from "@tg/runtime/Device"
import { Effect, Exit, Scope, Semaphore } from "effect"
import type * as Loader from "./Loader.ts"
import type { ModelFile } from "./ModelFile.ts"
import * as Services from "./Services.ts"
import * as Session from "./Session.ts"

/** Tokens a context has room for when `tokens` have to fit: the first size, doubled as often as it takes. */
export const sizeFor = (tokens: number, { first, most }: { readonly first: number; readonly most: number }): number => {
  let size = first
  while (size < tokens) size *= 2
  return Math.min(size, most)
}

/** A session of that many tokens, which may begin with what another one holds. */
export type Make = (
  options: { readonly context: number } & Pick<Session.SessionOptions, "from">
) => Effect.Effect<Session.Session, Session.StepError, Scope.Scope>

/** A session that holds up to `most` tokens, and takes memory for `first` of them to begin with. */
export const over: (
  makeSession: Make,
  sizes: { readonly first: number; readonly most: number }
) => Effect.Effect<Session.Session, Session.StepError, Scope.Scope> = Effect.fn("Growing.over")(
  function*(makeSession, { first, most }) {
    const scope = yield* Effect.scope
    const open = (options: Parameters<Make>[0]) =>
      Effect.gen(function*() {
        const own = yield* Scope.fork(scope)
        const session = yield* makeSession(options).pipe(
          Scope.provide(own),
          Effect.onExit((exit) => Exit.isSuccess(exit) ? Effect.void : Scope.close(own, exit))
        )
        return { own, session }
      })
    let current = yield* open({ context: Math.min(first, most) })
    const lock = yield* Semaphore.make(1)

    /** The session, with room for so many tokens. */
    const roomFor = Effect.fnUntraced(function*(tokens: number) {
      if (tokens > most) return yield* new Session.ContextFull({ asked: tokens, limit: most, modelLimit: most })
      if (tokens <= current.session.context) return current.session
      const before = current
      current = yield* open({ context: sizeFor(tokens, { first, most }), from: before.session })
      yield* Scope.close(before.own, Exit.void)
      return current.session
    })
    // a session is not replaced while someone uses it
    const using = <A>(tokens: () => number, use: (session: Session.Session) => Effect.Effect<A, Session.StepError>) =>
      lock.withPermits(1)(Effect.flatMap(Effect.suspend(() => roomFor(tokens())), use))
    const held = (): number => current.session.tokens().length

    const { activations, chunk, rowBytes, sampler, vocabulary } = current.session
    return {
      context: most,
      activations,
      vocabulary,
      sampler,
      chunk,
      get caches() {
        return current.session.caches
      },
      tokens: () => current.session.tokens(),
      forgotten: () => current.session.forgotten(),
      reusable: (tokens) => current.session.reusable(tokens),
      advance: (tokens) => using(() => tokens.length, (session) => session.advance(tokens)),
      next: (tokens, sampling, mask) => using(() => tokens.length, (session) => session.next(tokens, sampling, mask)),
      append: (tokens) => using(() => held() + tokens.length, (session) => session.append(tokens)),
      verify: (tokens, drafts) =>
        using(() => tokens.length + drafts.length, (session) => session.verify(tokens, drafts)),
      verifyDrawn: (tokens, drafts, sampling) =>
        using(() => tokens.length + drafts.length, (session) => session.verifyDrawn(tokens, drafts, sampling)),
      predict: (tokens, most) => using(() => tokens.length, (session) => session.predict(tokens, most)),
      round: (tokens, asked) => using(() => tokens.length, (session) => session.round(tokens, asked)),
      keep: (count) => lock.withPermits(1)(Effect.suspend(() => current.session.keep(count))),
      rowBytes,
      adopt: (from, count) =>
        using(() => Math.min(count, from.tokens().length), (session) => session.adopt(from, count)),
      snapshot: using(held, (session) => session.snapshot),
      restore: (snapshot, count) =>
        using(() => Math.min(count, snapshot.tokens.length), (session) => session.restore(snapshot, count)),
      reset: lock.withPermits(1)(Effect.suspend(() => current.session.reset)),
      prepare: (rows) => using(held, (session) => session.prepare(rows)),
      prepareDrafts: (tokens, sampling) => using(held, (session) => session.prepareDrafts(tokens, sampling)),
      prepareNext: (sampling) => using(held, (session) => session.prepareNext(sampling)),
      decodeStep: (start) => using(() => Math.min(most, start + 1), (session) => session.decodeStep(start)),
      promptStep: (start, length) =>
        using(() => Math.min(most, start + length), (session) => session.promptStep(start, length))
    }
  }
)

/** A session over loaded weights: of the context that was asked for, all at once, else of one that grows. */
export const make = (
  model: ModelFile,
  weights: Loader.Tensors,
  options: Session.SessionOptions = {}
): Effect.Effect<Session.Session, Session.StepError, Device | Jit | Scope.Scope> =>
  Effect.gen(function*() {
    const most = model.config.contextLength
    if (options.context !== undefined || most <= Session.defaultContext) {
      return yield* Session.make(model, weights, options)
    }
    const services = yield* Services.ofSessions
    return yield* over(
      (sizes) => Effect.provide(Session.make(model, weights, { ...options, ...sizes }), services),
      { first: Session.defaultContext, most }
    )
  })
