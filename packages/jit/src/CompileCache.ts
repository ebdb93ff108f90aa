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

/** Why something kept is not used, or something made is not kept. */
export type CacheProblem = KeyValueStoreError | PlanText.DamagedPlan

/** How plans are kept in a store. */
export interface StoreOptions {
  /**
   * The version of the compiler's code. Plans of another one are not found; what the stages are and what they were given is
   * in the keys (`Pipeline.id`).
   */
  readonly compiler: string
  /** Told of each problem; the program is compiled then, as if nothing were kept. */
  readonly onProblem?: ((problem: CacheProblem) => Effect.Effect<void>) | undefined
}

/**
 * Keeps what `Jit` has compiled. It is asked before a program is scheduled, and may forget anything at any time. Unless one
 * is provided, nothing is kept.
 */
export const CompileCache = Context.Reference<CompileCacheShape>("@tg/jit/CompileCache", {
  defaultValue: () => ({ get: () => Effect.undefined, set: () => Effect.void })
})

/** Keeps plans as long as the layer lives. */
export const layerMemory: Layer.Layer<never> = Layer.sync(CompileCache, () => {
  const plans = new Map<string, ExecutionPlan>()
  return {
    get: (key) => Effect.sync(() => plans.get(key)),
    set: (key, plan) => Effect.sync(() => void plans.set(key, plan))
  }
})

/** Keeps plans in a store: a folder, or what a page may keep. */
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
