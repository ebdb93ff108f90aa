/** Compiled programs that the browser keeps for the page's origin, in its Cache Storage. */
import { Effect, Layer } from "effect"
import { KeyValueStore, KeyValueStoreError, makeStringOnly } from "effect/persistence/KeyValueStore"
import * as CompileCache from "@tg/jit/CompileCache"

const prefix = "tg-programs-"

/** Entries of Cache Storage are answers to requests; nobody makes these. */
const addressOf = (key: string): string => `https://programs.invalid/${key}`

const attempt = <A>(method: string, f: () => Promise<A>): Effect.Effect<A, KeyValueStoreError> =>
  Effect.tryPromise({
    try: f,
    catch: (cause) =>
      new KeyValueStoreError({ method, message: `the browser does not keep programs: ${String(cause)}`, cause })
  })

/** Texts in one cache of the browser. */
const over = (cache: Cache): KeyValueStore => {
  const keys = attempt("keys", () => cache.keys())
  return makeStringOnly({
    get: (key) => attempt("get", async () => (await cache.match(addressOf(key)))?.text()),
    set: (key, value) => attempt("set", () => cache.put(addressOf(key), new Response(value))),
    remove: (key) => attempt("remove", () => cache.delete(addressOf(key))),
    clear: Effect.flatMap(
      keys,
      (requests) => attempt("clear", () => Promise.all(requests.map((request) => cache.delete(request))))
    ),
    size: Effect.map(keys, (requests) => requests.length),
    keys: Effect.map(keys, (requests) => requests.map(({ url }) => url.slice(addressOf("").length)))
  })
}

/**
 * Keeps what a build of the compiler has compiled, and forgets what others have. Where the browser keeps nothing (no secure page, a
 * private window), programs are compiled each time.
 */
export const layer = (build: string): Layer.Layer<never> =>
  Layer.unwrap(
    attempt("open", async () => {
      const name = `${prefix}${build}`
      const names = await caches.keys()
      await Promise.all(
        names.filter((each) => each.startsWith(prefix) && each !== name).map((each) => caches.delete(each))
      )
      return over(await caches.open(name))
    }).pipe(
      Effect.map((store) =>
        CompileCache.layerStore({ compiler: build, onProblem: (problem) => Effect.logWarning(problem.message) }).pipe(
          Layer.provide(Layer.succeed(KeyValueStore, store))
        )
      ),
      Effect.catch((problem) => Effect.as(Effect.logDebug(problem.message), Layer.empty))
    )
  )
