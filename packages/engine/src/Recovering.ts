/**
 * Sessions that outlive their device. When the device is lost, everything is built again, on a device that is made for it, and
 * what was asked for is asked again: a session says with each step which tokens it is to hold, so the new one computes
 * them all.
 */
import { DeviceError } from "@tg/runtime/Device"
import { Cause, Effect, Exit, Scope, Semaphore } from "effect"
import type { Session, StepError } from "./Session.ts"

/** Whether the device is gone, or computed nothing that counts, and nothing helps but to build everything again. */
export const isLost = (error: unknown): error is DeviceError =>
  error instanceof DeviceError && (error.reason === "DeviceLost" || error.reason === "BarriersFailed")

/** Something that stands on a device, and the Scope that ends with it. */
export interface Standing<H> {
  readonly value: H
  readonly scope: Scope.Closeable
}

/** Something that is built again when its device is lost. */
export interface Home<H> {
  /** Where it stands; after a loss where it stood, until it is replaced. */
  readonly current: () => Standing<H>
  /** Whether it stands there: not once that is lost, even if nothing has replaced it yet. */
  readonly stands: (standing: Standing<H>) => boolean
  /** Where it stands, once what is lost is replaced. What could not be replaced is tried again. */
  readonly settled: Effect.Effect<Standing<H>, DeviceError>
  /** Replaces what is lost, unless someone else has. What cannot be rebuilt stays lost. */
  readonly rebuild: (lost: Standing<H>, error: DeviceError) => Effect.Effect<Standing<H>, DeviceError>
}

/** Runs it in a Scope of its own inside of another, which is closed at once if it fails. */
export const within = <A, E>(
  scope: Scope.Scope,
  made: Effect.Effect<A, E, Scope.Scope>
): Effect.Effect<Standing<A>, E> =>
  Effect.gen(function*() {
    const own = yield* Scope.fork(scope)
    const value = yield* made.pipe(
      Scope.provide(own),
      Effect.onExit((exit) => Exit.isSuccess(exit) ? Effect.void : Scope.close(own, exit))
    )
    return { value, scope: own }
  })

/** What `first` makes; after a loss, what `again` makes. Without `again` a loss is final. */
export const home: <H, E1, E2>(
  first: Effect.Effect<H, E1, Scope.Scope>,
  again: Effect.Effect<H, E2, Scope.Scope> | undefined
) => Effect.Effect<Home<H>, E1, Scope.Scope> = Effect.fnUntraced(
  function*<H, E1, E2>(
    first: Effect.Effect<H, E1, Scope.Scope>,
    again: Effect.Effect<H, E2, Scope.Scope> | undefined
  ) {
    const scope = yield* Effect.scope
    let current = yield* within(scope, first)
    // why `current` is lost, until it is replaced
    let loss: DeviceError | undefined
    const lock = yield* Semaphore.make(1)
    const replaced = Effect.gen(function*() {
      const error = loss
      if (error === undefined) return current
      if (again === undefined) return yield* error
      yield* Scope.close(current.scope, Exit.void)
      current = yield* Effect.mapError(within(scope, again), (cause) =>
        new DeviceError({
          reason: error.reason,
          message: `${error.message} It could not be replaced: ${
            cause instanceof Error ? cause.message : String(cause)
          }`
        }))
      loss = undefined
      return current
    }).pipe(lock.withPermits(1))
    // each token asks
    const settled = Effect.suspend(() => loss === undefined ? Effect.succeed(current) : replaced)
    return {
      current: () => current,
      stands: (standing) => standing === current && loss === undefined,
      settled,
      rebuild: (lost, error) =>
        Effect.suspend(() => {
          if (lost === current) loss ??= error
          return settled
        })
    } satisfies Home<H>
  }
)

/** Something that is made on a home, and made again wherever the home stands after a loss. */
export interface Resident<A> {
  /** What was made last. */
  readonly last: () => A
  /** The same, if the home still stands where it was made. */
  readonly here: () => A | undefined
  /**
   * Does something with it, and once more after a loss, whoever met that first: what closes the Scope of what is lost ends what
   * others do there. A loss that comes again while the same is asked for the second time is an error.
   */
  readonly ask: <B, E>(
    use: (own: A, isAgain: boolean) => Effect.Effect<B, E>
  ) => Effect.Effect<B, E | StepError>
}

/** Makes it on the home. Its Scope is `make`'s business. */
export const resident: <H, A>(
  home: Home<H>,
  make: (standing: Standing<H>) => Effect.Effect<A, StepError>
) => Effect.Effect<Resident<A>, StepError> = Effect.fnUntraced(
  function*<H, A>(home: Home<H>, make: (standing: Standing<H>) => Effect.Effect<A, StepError>) {
    const lock = yield* Semaphore.make(1)
    let own!: { readonly standing: Standing<H>; readonly made: A }
    const known = (standing: Standing<H>): Effect.Effect<A> | undefined =>
      (own as typeof own | undefined)?.standing === standing ? Effect.succeed(own.made) : undefined
    const at = (standing: Standing<H>): Effect.Effect<A, StepError> =>
      known(standing) ??
        Effect.suspend(() => known(standing) ?? Effect.map(make(standing), (made) => (own = { standing, made }).made))
          .pipe(lock.withPermits(1))
    const attempt = <B, E>(
      use: (own: A, isAgain: boolean) => Effect.Effect<B, E>,
      isAgain: boolean
    ): Effect.Effect<B, E | StepError> =>
      Effect.flatMap(home.settled, (standing) => {
        const tried = Effect.flatMap(at(standing), (made) => use(made, isAgain))
        return isAgain ? tried : Effect.catchCause(tried, (cause) => {
          const error = Cause.squash(cause)
          return isLost(error)
            ? Effect.andThen(home.rebuild(standing, error), attempt(use, true))
            : home.stands(standing)
            ? Effect.failCause(cause)
            : attempt(use, true)
        })
      })
    yield* attempt(Effect.succeed, true)
    return {
      last: () => own.made,
      here: () => home.stands(own.standing) ? own.made : undefined,
      ask: (use) => attempt(use, false)
    } satisfies Resident<A>
  }
)

/** A session of a home. */
export const session: <H>(
  home: Home<H>,
  open: (value: H) => Effect.Effect<Session, StepError, Scope.Scope>
) => Effect.Effect<Session, StepError> = Effect.fnUntraced(
  function*<H>(home: Home<H>, open: (value: H) => Effect.Effect<Session, StepError, Scope.Scope>) {
    // the Scope of what was lost is closed, and the session's with it
    const { ask, here, last } = yield* resident(
      home,
      (standing) => Effect.map(within(standing.scope, open(standing.value)), ({ value }) => value)
    )
    const tokens = (): ReadonlyArray<number> => here()?.tokens() ?? []
    const { activations, chunk, context, rowBytes, sampler, vocabulary } = last()
    return {
      context,
      activations,
      vocabulary,
      sampler,
      chunk,
      get caches() {
        return last().caches
      },
      tokens,
      forgotten: () => here()?.forgotten() ?? 0,
      reusable: (tokens) => here()?.reusable(tokens) ?? 0,
      advance: (tokens) => ask((session) => session.advance(tokens)),
      next: (tokens, sampling, mask) => ask((session) => session.next(tokens, sampling, mask)),
      append: (more) =>
        Effect.suspend(() => {
          const before = tokens()
          return ask((session, isAgain) =>
            Effect.andThen(
              isAgain && before.length > 0 ? session.advance(before) : Effect.void,
              session.append(more)
            )
          )
        }),
      verify: (tokens, drafts) => ask((session) => session.verify(tokens, drafts)),
      verifyDrawn: (tokens, drafts, sampling) => ask((session) => session.verifyDrawn(tokens, drafts, sampling)),
      predict: (tokens, most) => ask((session) => session.predict(tokens, most)),
      round: (tokens, asked) => ask((session) => session.round(tokens, asked)),
      keep: (count) => Effect.suspend(() => last().keep(count)),
      rowBytes,
      // what the other one held before a loss is not there to be copied
      adopt: (from, count) => ask((session) => session.adopt(from, Math.min(count, from.tokens().length))),
      snapshot: ask((session) => session.snapshot),
      restore: (snapshot, count) => ask((session) => session.restore(snapshot, count)),
      reset: Effect.suspend(() => last().reset),
      prepare: (rows) => ask((session) => session.prepare(rows)),
      prepareDrafts: (tokens, sampling) => ask((session) => session.prepareDrafts(tokens, sampling)),
      prepareNext: (sampling) => ask((session) => session.prepareNext(sampling)),
      decodeStep: (start) => ask((session) => session.decodeStep(start)),
      promptStep: (start, length) => ask((session) => session.promptStep(start, length))
    } satisfies Session
  }
)
