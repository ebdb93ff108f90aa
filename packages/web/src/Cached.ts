/** Texts that the browser keeps for the page's origin, in its Cache Storage: workers have that too. */
import { Effect } from "effect"
import { type KeyValueStore, KeyValueStoreError, make } from "effect/persistence/KeyValueStore"

/** Entries of Cache Storage are answers to requests; nobody makes these. */
const addressOf = (key: string): string => `https://programs.invalid/${key}`

const attempt = <A>(method: string, f: () => Promise<A>): Effect.Effect<A, KeyValueStoreError> =>
  Effect.tryPromise({
    try: f,
    catch: (cause) => new KeyValueStoreError({ method, message: `the browser keeps nothing: ${String(cause)}`, cause })
  })

/** Texts and bytes in one cache of the browser. */
const over = (cache: Cache): KeyValueStore => {
  const keys = attempt("keys", () => cache.keys())
  return make({
    get: (key) => attempt("get", async () => (await cache.match(addressOf(key)))?.text()),
    getUint8Array: (key) =>
      attempt("get", async () => {
        const kept = await cache.match(addressOf(key))
        return kept && new Uint8Array(await kept.arrayBuffer())
      }),
    set: (key, value) =>
      attempt("set", () => cache.put(addressOf(key), new Response(typeof value === "string" ? value : value.slice()))),
    remove: (key) => attempt("remove", () => cache.delete(addressOf(key))),
    clear: Effect.flatMap(
      keys,
      (requests) => attempt("clear", () => Promise.all(requests.map((request) => cache.delete(request))))
    ),
    size: Effect.map(keys, (requests) => requests.length),
    keys: Effect.map(keys, (requests) => requests.map(({ url }) => url.slice(addressOf("").length)))
  })
}

/** The store of a name. Others, of which `isOld` says so, are forgotten. */
export const open = (
  name: string,
  isOld: (other: string) => boolean = () => false
): Effect.Effect<KeyValueStore, KeyValueStoreError> =>
  attempt("open", async () => {
    const others = (await caches.keys()).filter((each) => each !== name && isOld(each))
    await Promise.all(others.map((each) => caches.delete(each)))
    return over(await caches.open(name))
  })
