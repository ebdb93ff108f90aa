/** Workers of a browser, for the worker modules of Effect: the page's end. The worker needs nothing of it. */
import { Deferred, Effect, Exit, Layer, Scope } from "effect"
import * as EffectWorker from "effect/workers/Worker"
import type { WorkerError } from "effect/workers/WorkerError"
import { received } from "./platform.ts"

const explain = (event: Event): string =>
  "message" in event && typeof event.message === "string" && event.message !== ""
    ? event.message
    : "its script could not be loaded; worker.js and its chunks have to lie beside the page's script, on the same origin"

/** The page's end. A worker ends with the scope, in the middle of whatever it does: its memory and its GPU go with it. */
export const layerPage = (spawn: () => Worker): Layer.Layer<EffectWorker.WorkerPlatform | EffectWorker.Spawner> =>
  Layer.merge(
    EffectWorker.layerSpawner(spawn),
    Layer.succeed(
      EffectWorker.WorkerPlatform,
      EffectWorker.makePlatform<Worker>()({
        setup: ({ scope, worker }) => {
          // what is not shared is a copy there, which says from the first message on that one is on its way
          const sent = new Int32Array(crossOriginIsolated ? new SharedArrayBuffer(4) : new ArrayBuffer(4))
          return Effect.as(
            Scope.addFinalizer(scope, Effect.sync(() => worker.terminate())),
            {
              worker,
              sent,
              postMessage: (message: unknown, list?: Array<Transferable>) => {
                Atomics.add(sent, 0, 1)
                worker.postMessage(message, list ?? [])
              }
            }
          )
        },
        listen: ({ deferred, emit, port: { sent, worker } }) =>
          Effect.sync(() => {
            const fail = (error: WorkerError) => Deferred.doneUnsafe(deferred, Exit.fail(error))
            worker.addEventListener("message", (event) => emit(event.data))
            worker.addEventListener("messageerror", (event) =>
              fail(received("a message of the worker cannot be read", event.data)))
            worker.addEventListener("error", (event) => {
              event.preventDefault()
              fail(received(`the worker failed: ${explain(event)}`))
            })
            // one that was started before may have said that it is ready when nobody listened
            worker.postMessage([2, sent], [])
          })
      })
    )
  )
