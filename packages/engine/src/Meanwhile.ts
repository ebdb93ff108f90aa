/** Programs that are compiled while weights are on their way. */
import { Ready } from "@tg/jit/Persistent"
import { type Duration, Effect, Latch } from "effect"

/** Both, and how long each took. What is compiled is tried once the weights are there: as long as they change, two runs of the same differ. */
export const whileFilling = <A, E, R, B, E2, R2>(
  fill: Effect.Effect<A, E, R>,
  compile: Effect.Effect<B, E2, R2>
): Effect.Effect<readonly [Duration.Duration, Duration.Duration], E | E2, R | R2> =>
  Effect.gen(function*() {
    const filled = yield* Latch.make()
    const [[filling], [compiling]] = yield* Effect.all([
      Effect.timed(Effect.andThen(fill, filled.open)),
      Effect.timed(Effect.provideService(compile, Ready, filled.await))
    ], { concurrency: 2 })
    return [filling, compiling] as const
  })
