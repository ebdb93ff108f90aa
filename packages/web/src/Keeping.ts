/** Models that the browser keeps, in the worker. The store is fetched when it is first asked for. */
import * as Http from "@tg/hub/Http"
import * as ModelName from "@tg/hub/ModelName"
import { Effect, Layer, Queue, Stream } from "effect"
import { fromTagged, ModelError } from "./ModelError.ts"
import type { Coming, Kept } from "./Protocol.ts"

/** A page never sees where a redirection goes: the browser follows it, by its own rules. */
const follow: Http.Fetch = (url, init) => fetch(url, { ...init, redirect: "follow" })

/** How a page asks servers. */
export const http: Layer.Layer<Http.Http> = Http.Http.layer({ fetch: follow })

const isPossible = (): boolean =>
  "FileSystemFileHandle" in globalThis && "createSyncAccessHandle" in FileSystemFileHandle.prototype &&
  (navigator as { readonly locks?: LockManager }).locks !== undefined

const impossible = new ModelError({
  reason: "StoreError",
  message: "this browser keeps no files for pages; load the model without keeping it"
})

/** The store of this origin. */
export const store = Effect.gen(function*() {
  if (!isPossible()) return yield* impossible
  const [{ OpfsStore }, machine] = yield* Effect.promise(() =>
    Promise.all([import("@tg/hub/OpfsStore"), import("@tg/hub/BrowserMachine")])
  )
  return yield* OpfsStore.pipe(
    Effect.provide(OpfsStore.layer().pipe(Layer.provide([http, machine.layer]))),
    Effect.mapError(fromTagged)
  )
})

/** Fetches a model into the store, and tells how far it is. */
export const keep = (name: string): Stream.Stream<typeof Coming.Type | Kept, ModelError> =>
  Stream.callback((queue) =>
    Effect.gen(function*() {
      const { pull } = yield* store
      const asked = yield* Effect.fromResult(ModelName.parse(name)).pipe(Effect.mapError(fromTagged))
      let told = -Infinity
      const model = yield* pull(asked, (progress) => {
        const now = performance.now()
        // as often as people see
        if (now - told < 50) return Effect.void
        told = now
        return Effect.asVoid(Queue.offer(queue, { _tag: "Coming" as const, ...progress }))
      }).pipe(Effect.mapError(fromTagged))
      yield* Queue.offer(queue, { _tag: "Kept" as const, ...model })
      yield* Queue.end(queue)
    })
  )

/** What the browser keeps. */
export const kept: Effect.Effect<ReadonlyArray<Kept>, ModelError> = Effect.gen(function*() {
  if (!isPossible()) return []
  const all = yield* Effect.flatMap(store, ({ list }) => list).pipe(Effect.mapError(fromTagged))
  return all.map((model) => ({ _tag: "Kept" as const, ...model }))
})

/** Takes a model out of the store. */
export const forget = (name: string): Effect.Effect<number, ModelError> =>
  Effect.flatMap(store, ({ remove }) => remove(name)).pipe(Effect.mapError(fromTagged))
