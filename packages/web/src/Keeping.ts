/** Models that the browser keeps, in the worker. The store is fetched when it is first asked for. */
import { Effect, Queue, Stream } from "effect"
import { fromTagged, ModelError } from "./ModelError.ts"
import type { Coming, Kept } from "./Protocol.ts"

const hub = Effect.promise(() => import("./Hub.ts"))

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
  return yield* (yield* hub).store
})

/** Fetches a model into the store, and tells how far it is. */
export const keep = (name: string): Stream.Stream<typeof Coming.Type | Kept, ModelError> =>
  Stream.callback((queue) =>
    Effect.gen(function*() {
      const { pull } = yield* store
      const asked = yield* (yield* hub).named(name).pipe(Effect.mapError(fromTagged))
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
