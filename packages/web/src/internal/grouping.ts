/** What is written within a few milliseconds goes to the page in one message. */
import type { NonEmptyReadonlyArray } from "effect/Array"
import { Cause, Clock, Effect, Fiber, Pull, Stream } from "effect"
import type { Part } from "./messages.ts"

/**
 * Milliseconds between groups: a page draws no more often. A message and the page's answer to it take some 0.2, during which nothing is
 * computed (`docs/page.md`).
 */
export const together = 16

/** What is sent for elements. */
export interface Writing<A, B> {
  readonly each: (element: A) => ReadonlyArray<B>
  /** What is sent behind the last one. */
  readonly end: () => ReadonlyArray<B>
}

const isSome = <B>(pieces: ReadonlyArray<B>): pieces is NonEmptyReadonlyArray<B> => pieces.length > 0

/**
 * Pieces of elements in groups: the first one at once, then what comes within `together` of the group before it. Messages are taken
 * between two elements, so it is heard there that the page wants no more. An element sends a group, not a timer: the last one that is
 * expected in time. So what takes more than half of `together` waits for nothing. Pieces that wait when the stream ends or fails are sent first.
 * The next group, and no more, is computed while the page answers to one, unless tokens come one by one: then a page that stops
 * has at most one behind the last that it took.
 */
export const grouped =
  <A, B>({ each, end }: Writing<A, B>) => <E, R>(self: Stream.Stream<A, E, R>): Stream.Stream<Part<B>, E, R> =>
    Stream.transformPull(self, (pull, scope) =>
      Effect.gen(function*() {
        const clock = yield* Clock.Clock
        let waiting: Array<B> = []
        let due = -Infinity
        let took = 0
        let over: Effect.Effect<never, E | Cause.Done<void>> | undefined
        const step = Pull.matchEffect(pull, {
          onSuccess: (elements) => {
            for (const element of elements) waiting.push(...each(element))
            return Effect.yieldNow
          },
          onFailure: (cause) => Effect.sync(() => void (over = Effect.failCause(cause))),
          onDone: () =>
            Effect.sync(() => {
              waiting.push(...end())
              over = Cause.done()
            })
        })
        const compute = Effect.gen(function*() {
          for (;;) {
            if (over !== undefined) return yield* over
            const began = clock.currentTimeMillisUnsafe()
            yield* step
            const now = clock.currentTimeMillisUnsafe()
            const group = waiting
            // the next one is expected to take as long
            took = now - began
            if (isSome(group) && (over !== undefined || now + took > due)) {
              waiting = []
              due = now + together
              return { values: group, isLast: over !== undefined }
            }
          }
        })
        let ahead: Fiber.Fiber<Part<B>, E | Cause.Done<void>> | undefined
        return Effect.gen(function*() {
          const part = yield* ahead === undefined ? compute : Fiber.join(ahead)
          ahead = part.isLast || 2 * took > together ? undefined : yield* Effect.forkIn(compute, scope)
          return [part] as const
        })
      }))
