/** Compiled programs that the browser keeps for the page's origin, in its Cache Storage. */
import { Effect, Fiber, Layer, Schema, type Scope } from "effect"
import { KeyValueStore, make } from "effect/persistence/KeyValueStore"
import * as CompileCache from "@tg/jit/CompileCache"
import * as Cached from "./Cached.ts"

const prefix = "tg-programs-"

const Shipped = Schema.fromJsonString(Schema.Record(Schema.String, Schema.String))

/** Fetches what came with the bundle. Without it, programs are compiled. */
const fetched = (address: string): Effect.Effect<Readonly<Record<string, string>>> =>
  Effect.tryPromise(async () => {
    const response = await fetch(address)
    if (!response.ok) throw new Error(`the server answers ${response.status}`)
    return response.text()
  }).pipe(
    Effect.flatMap(Schema.decodeEffect(Shipped)),
    Effect.catch((problem) => Effect.as(Effect.logWarning(`${address}: ${problem.message}`), {}))
  )

/** What came with the bundle, fetched while the model is looked at, and behind it the store. */
const withShipped = (store: KeyValueStore, address: string): Effect.Effect<KeyValueStore, never, Scope.Scope> =>
  Effect.map(Effect.forkScoped(fetched(address)), (coming) => ({
    ...store,
    get: (key) =>
      Effect.flatMap(
        Fiber.join(coming),
        (shipped) => shipped[key] === undefined ? store.get(key) : Effect.succeed(shipped[key])
      )
  }))

const nowhere = make({
  get: () => Effect.undefined,
  getUint8Array: () => Effect.undefined,
  set: () => Effect.void,
  remove: () => Effect.void,
  clear: Effect.void,
  size: Effect.succeed(0),
  keys: Effect.succeed([])
})

/**
 * Keeps what a build of the compiler has compiled, and forgets what others have. Where the browser keeps nothing (no secure page, a
 * private window), programs are compiled each time, but for those that came with the bundle.
 */
export const layer = (build: string, shipped?: string): Layer.Layer<never> =>
  Layer.unwrap(Effect.gen(function*() {
    const store = yield* Cached.open(`${prefix}${build}`, (name) => name.startsWith(prefix)).pipe(
      Effect.catch((problem) => Effect.as(Effect.logDebug(problem.message), nowhere))
    )
    const all = shipped === undefined ? store : yield* withShipped(store, shipped)
    return CompileCache.layerStore({ compiler: build, onProblem: (problem) => Effect.logWarning(problem.message) })
      .pipe(
        Layer.provide(Layer.succeed(KeyValueStore, all))
      )
  }))
