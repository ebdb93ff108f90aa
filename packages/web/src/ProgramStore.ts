/** Compiled programs that the browser keeps for the page's origin, in its Cache Storage. */
import { Effect, Layer } from "effect"
import { KeyValueStore } from "effect/persistence/KeyValueStore"
import * as CompileCache from "@tg/jit/CompileCache"
import * as Cached from "./Cached.ts"

const prefix = "tg-programs-"

/**
 * Keeps what a build of the compiler has compiled, and forgets what others have. Where the browser keeps nothing (no secure page, a
 * private window), programs are compiled each time.
 */
export const layer = (build: string): Layer.Layer<never> =>
  Layer.unwrap(
    Cached.open(`${prefix}${build}`, (name) => name.startsWith(prefix)).pipe(
      Effect.map((store) =>
        CompileCache.layerStore({ compiler: build, onProblem: (problem) => Effect.logWarning(problem.message) }).pipe(
          Layer.provide(Layer.succeed(KeyValueStore, store))
        )
      ),
      Effect.catch((problem) => Effect.as(Effect.logDebug(problem.message), Layer.empty))
    )
  )
