/**
 * Sessions that outlive their device. When the device is lost, everything is built again, on a device that is made for it, and
 * what was asked for is asked again: a session says with each step which tokens it is to hold, so the new one computes
 * them all.
 */
import { DeviceError } from "@tg/runtime/Device"
import { Effect, Exit, Scope, Semaphore } from "effect"
import type { Session, StepError } from "./Session.ts"

/** Whether the device is gone, or computed nothing that counts, and nothing helps but to build everything again. */
export const isLost = (error: StepError): error is DeviceError =>
  error._tag === "DeviceError" && (error.reason === "DeviceLost" || error.reason === "BarriersFailed")

/** Something that stands on a device, and the Scope that ends with it. */
export interface Standing<H> {
  readonly value: H
  readonly scope: Scope.Closeable
}

/** Something that is built again when its device is lost. */
export interface Home<H> {
  readonly current: () => Standing<H>
  /** Replaces what is lost, unless someone else has. What cannot be rebuilt stays lost. */
  readonly rebuild: (lost: Standing<H>, error: DeviceError) => Effect.Effect<void, DeviceError>
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
    const lock = yield* Semaphore.make(1)
    return {
      current: () => current,
      rebuild: (lost, error) =>
        Effect.gen(function*() {
          if (current !== lost) return
          if (again === undefined) return yield* error
          yield* Scope.close(lost.scope, Exit.void)
          current = yield* Effect.mapError(within(scope, again), (cause) =>
            new DeviceError({
              reason: error.reason,
              message: `${error.message} It could not be replaced: ${
                cause instanceof Error ? cause.message : String(cause)
              }`
            }))
        }).pipe(lock.withPermits(1))
    } satisfies Home<H>
  }
)

/**
 * A session of a home, opened again wherever the home stands now. A loss that comes again while the same step is asked for
 * the second time is an error.
 */
export const session: <H>(
  home: Home<H>,
  open: (value: H) => Effect.Effect<Session, StepError, Scope.Scope>
) => Effect.Effect<Session, StepError> = Effect.fnUntraced(
  function*<H>(home: Home<H>, open: (value: H) => Effect.Effect<Session, StepError, Scope.Scope>) {
    const openAt = (standing: Standing<H>) =>
      Effect.map(within(standing.scope, open(standing.value)), ({ value }) => ({ standing, session: value }))
    let own = yield* openAt(home.current())
    const lock = yield* Semaphore.make(1)
    // the Scope of what was lost is closed, and the session's with it
    const here = Effect.suspend(() =>
      own.standing === home.current()
        ? Effect.succeed(own)
        : Effect.map(openAt(home.current()), (opened) => own = opened)
    ).pipe(lock.withPermits(1))
    const tokens = (): ReadonlyArray<number> => own.standing === home.current() ? own.session.tokens() : []

    /** Does something with the session, and once more after a loss. `before` says what the session held. */
    const asking = <A>(
      use: (session: Session, before: ReadonlyArray<number> | undefined) => Effect.Effect<A, StepError>
    ): Effect.Effect<A, StepError> =>
      Effect.suspend(() => {
        const before = tokens()
        let standing = home.current()
        return Effect.flatMap(here, (found) => {
          standing = found.standing
          return use(found.session, undefined)
        }).pipe(
          Effect.catchIf(isLost, (error) =>
            home.rebuild(standing, error).pipe(
              Effect.andThen(here),
              Effect.flatMap(({ session }) => use(session, before))
            ))
        )
      })

    const { activations, chunk, context, rowBytes, sampler, vocabulary } = own.session
    return {
      context,
      activations,
      vocabulary,
      sampler,
      chunk,
      get caches() {
        return own.session.caches
      },
      tokens,
      forgotten: () => own.standing === home.current() ? own.session.forgotten() : 0,
      reusable: (tokens) => own.standing === home.current() ? own.session.reusable(tokens) : 0,
      advance: (tokens) => asking((session) => session.advance(tokens)),
      next: (tokens, sampling, mask) => asking((session) => session.next(tokens, sampling, mask)),
      append: (tokens) =>
        asking((session, before = []) =>
          Effect.andThen(before.length === 0 ? Effect.void : session.advance(before), session.append(tokens))
        ),
      verify: (tokens, drafts) => asking((session) => session.verify(tokens, drafts)),
      verifyDrawn: (tokens, drafts, sampling) => asking((session) => session.verifyDrawn(tokens, drafts, sampling)),
      predict: (tokens, most) => asking((session) => session.predict(tokens, most)),
      round: (tokens, asked) => asking((session) => session.round(tokens, asked)),
      keep: (count) => Effect.suspend(() => own.session.keep(count)),
      rowBytes,
      adopt: (from, count) => asking((session) => session.adopt(from, count)),
      snapshot: asking((session) => session.snapshot),
      restore: (snapshot, count) => asking((session) => session.restore(snapshot, count)),
      reset: Effect.suspend(() => own.session.reset),
      prepare: (rows) => asking((session) => session.prepare(rows)),
      prepareDrafts: (tokens, sampling) => asking((session) => session.prepareDrafts(tokens, sampling)),
      prepareNext: (sampling) => asking((session) => session.prepareNext(sampling)),
      decodeStep: asking((session) => session.decodeStep),
      promptStep: (start, length) => asking((session) => session.promptStep(start, length))
    } satisfies Session
  }
)
