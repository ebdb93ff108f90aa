/** One tab at a time, by the browser's own locks: that of a tab which goes away is free at once. */
import { Effect, type Scope } from "effect"

/** Waits for its turn, until the scope closes. */
const acquire = (name: string): Effect.Effect<void, never, Scope.Scope> =>
  Effect.asVoid(Effect.acquireRelease(
    Effect.callback<() => void>((resume, signal) => {
      const held = new Promise<void>((release) => {
        navigator.locks.request(name, { signal }, () => {
          if (signal.aborted) return undefined
          resume(Effect.succeed(release))
          return held
        }).catch(() => {})
      })
    }),
    (release) => Effect.sync(release),
    { interruptible: true }
  ))

/** Whether some tab has it. */
export const isHeld = (name: string): Effect.Effect<boolean> =>
  Effect.promise(async () => (await navigator.locks.query()).held?.some((lock) => lock.name === name) ?? false)

/** Runs alone among all tabs. `onWait` is called every half second while another one has the lock. */
export const withLock = <A, E, R>(
  name: string,
  onWait: Effect.Effect<void>,
  use: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.scoped(Effect.gen(function*() {
    const waiting = Effect.forever(Effect.andThen(Effect.sleep(500), onWait))
    yield* Effect.raceFirst(acquire(name), waiting)
    return yield* use
  }))
