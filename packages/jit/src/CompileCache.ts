import { digest } from "@tg/core-uop/UOp"
import { Context, Effect, Layer } from "effect"
import { KeyValueStore, type KeyValueStoreError } from "effect/persistence/KeyValueStore"
import type { ExecutionPlan } from "./Plan.ts"
import * as PlanText from "./PlanText.ts"

/** Plans of programs that were compiled before, by `ProgramKey`. */
export interface CompileCacheShape {
  readonly get: (key: string) => Effect.Effect<ExecutionPlan | undefined>
  readonly set: (key: string, plan: ExecutionPlan) => Effect.Effect<void>
}

/** Why a stored plan is not used, or a new one not stored. */
export type CacheProblem = KeyValueStoreError | PlanText.DamagedPlan

/** Options of `layerStore`. */
export interface StoreOptions {
  /**
   * The version of the compiler's code. Plans of another version are misses; the stages and their settings are part of
   * the keys (`Pipeline.id`).
   */
  readonly compiler: string
  /** Called with each problem, which counts as a miss. */
  readonly onProblem?: ((problem: CacheProblem) => Effect.Effect<void>) | undefined
}

/**
 * Cache of the plans that `Jit` compiles, looked up before scheduling. It may evict any entry at any time. The default
 * stores nothing.
 */
export const CompileCache = Context.Reference<CompileCacheShape>("@tg/jit/CompileCache", {
  defaultValue: () => ({ get: () => Effect.undefined, set: () => Effect.void })
})

/** An unbounded cache in memory, for the lifetime of the layer. */
export const layerMemory: Layer.Layer<never> = Layer.sync(CompileCache, () => {
  const plans = new Map<string, ExecutionPlan>()
  return {
    get: (key) => Effect.sync(() => plans.get(key)),
    set: (key, plan) => Effect.sync(() => void plans.set(key, plan))
  }
})

/** A cache in a key-value store: a folder, or a browser's storage. */
export const layerStore = (
  { compiler, onProblem = () => Effect.void }: StoreOptions
): Layer.Layer<never, never, KeyValueStore> =>
  Layer.effect(
    CompileCache,
    Effect.map(KeyValueStore, (store) => {
      const whole = (key: string): string => `${digest(compiler)}-${key}`
      return {
        get: (key) =>
          store.get(digest(whole(key))).pipe(
            Effect.flatMap((text) =>
              text === undefined ? Effect.undefined : Effect.fromResult(PlanText.decode(whole(key), text))
            ),
            Effect.catch((problem) => Effect.as(onProblem(problem), undefined)),
            Effect.withSpan("CompileCache.get")
          ),
        set: (key, plan) => {
          const text = PlanText.encode(whole(key), plan)
          return text === undefined
            ? Effect.void
            : store.set(digest(whole(key)), text).pipe(Effect.catch(onProblem), Effect.withSpan("CompileCache.set"))
        }
      }
    })
  )
