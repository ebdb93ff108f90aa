/**
 * A session that outlives its device. When the device is lost, everything is built again, on a device that is made for it, and
 * what was asked for is asked again: a session says with each step which tokens it is to hold, so the new one computes
 * them all.
 */
import { DeviceError } from "@tg/runtime/Device"
import { Effect, Exit, Scope, Semaphore } from "effect"
import type { Session, StepError } from "./Session.ts"

/** Whether the device is gone, and nothing but another one helps. */
export const isLost = (error: StepError): error is DeviceError =>
  error._tag === "DeviceError" && error.reason === "DeviceLost"

/**
 * The session that `first` makes; after a loss, the one that `again` makes. A loss that comes again while the same step is
 * asked for the second time is an error.
 */
export const make: <E1, E2>(
  first: Effect.Effect<Session, E1, Scope.Scope>,
  again: Effect.Effect<Session, E2, Scope.Scope>
) => Effect.Effect<Session, E1, Scope.Scope> = Effect.fnUntraced(
  function*<E1, E2>(
    first: Effect.Effect<Session, E1, Scope.Scope>,
    again: Effect.Effect<Session, E2, Scope.Scope>
  ) {
    const scope = yield* Effect.scope
    const open = <E>(session: Effect.Effect<Session, E, Scope.Scope>) =>
      Effect.gen(function*() {
        const own = yield* Scope.fork(scope)
        const made = yield* session.pipe(
          Scope.provide(own),
          Effect.onExit((exit) => Exit.isSuccess(exit) ? Effect.void : Scope.close(own, exit))
        )
        return { own, session: made }
      })
    let current = yield* open(first)
    const lock = yield* Semaphore.make(1)

    /** Replaces a session whose device is lost, unless someone else has. What cannot be rebuilt stays lost. */
    const rebuild = (lost: typeof current, error: DeviceError) =>
      Effect.gen(function*() {
        if (current !== lost) return
        yield* Scope.close(lost.own, Exit.void)
        current = yield* Effect.mapError(open(again), (cause) =>
          new DeviceError({
            reason: "DeviceLost",
            message: `${error.message} It could not be replaced: ${
              cause instanceof Error ? cause.message : String(cause)
            }`
          }))
      }).pipe(lock.withPermits(1))

    /** Does something with the session, and once more after a loss. `before` says what the session held. */
    const asking = <A>(
      use: (session: Session, before: ReadonlyArray<number> | undefined) => Effect.Effect<A, StepError>
    ): Effect.Effect<A, StepError> =>
      Effect.suspend(() => {
        const used = current
        const before = used.session.tokens()
        return use(used.session, undefined).pipe(
          Effect.catchIf(isLost, (error) =>
            Effect.andThen(rebuild(used, error), Effect.suspend(() => use(current.session, before))))
        )
      })

    const { activations, chunk, context, vocabulary } = current.session
    return {
      context,
      activations,
      vocabulary,
      chunk,
      get caches() {
        return current.session.caches
      },
      tokens: () => current.session.tokens(),
      advance: (tokens) => asking((session) => session.advance(tokens)),
      next: (tokens, sampling, mask) => asking((session) => session.next(tokens, sampling, mask)),
      append: (tokens) =>
        asking((session, before = []) =>
          Effect.andThen(before.length === 0 ? Effect.void : session.advance(before), session.append(tokens))
        ),
      reset: Effect.suspend(() => current.session.reset),
      prepare: (rows) => asking((session) => session.prepare(rows)),
      prepareNext: (sampling) => asking((session) => session.prepareNext(sampling)),
      decodeStep: asking((session) => session.decodeStep),
      promptStep: (start, length) => asking((session) => session.promptStep(start, length))
    } satisfies Session
  }
)
