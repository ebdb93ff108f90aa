/** Workers of a browser, for the worker modules of Effect: the page's end and the worker's. */
import { Deferred, Effect, Exit, Fiber, Layer, Scope } from "effect"
import * as EffectWorker from "effect/workers/Worker"
import { WorkerError, WorkerReceiveError } from "effect/workers/WorkerError"
import * as WorkerRunner from "effect/workers/WorkerRunner"

const received = (message: string, cause?: unknown): WorkerError =>
  new WorkerError({ reason: new WorkerReceiveError({ message, cause }) })

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
        setup: ({ scope, worker }) =>
          Effect.as(
            Scope.addFinalizer(scope, Effect.sync(() => worker.terminate())),
            {
              worker,
              postMessage: (message: unknown, list?: Array<Transferable>) => worker.postMessage(message, list ?? [])
            }
          ),
        listen: ({ deferred, emit, port: { worker } }) =>
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
            worker.postMessage([2], [])
          })
      })
    )
  )

/** The worker's end: one port, the page that started it. */
export const layerWorker: Layer.Layer<WorkerRunner.WorkerRunnerPlatform> = Layer.succeed(
  WorkerRunner.WorkerRunnerPlatform,
  {
    start: <O, I>() => {
      // the types of a page are those of a window; this runs in a worker
      const page = globalThis as unknown as DedicatedWorkerGlobalScope
      const sendUnsafe = (_port: number, message: O, transfers: ReadonlyArray<unknown> = []) =>
        page.postMessage([1, message], transfers as Array<Transferable>)
      const runner: WorkerRunner.WorkerRunner<O, I> = {
        sendUnsafe,
        send: (port, message, transfers) => Effect.sync(() => sendUnsafe(port, message, transfers)),
        run: Effect.fnUntraced(
          function*<A, E, R>(handler: (port: number, message: I) => Effect.Effect<A, E, R> | void) {
            const scope = yield* Effect.scope
            const services = yield* Effect.context<R>()
            const closed = yield* Deferred.make<void, WorkerError>()
            page.addEventListener(
              "message",
              ({ data }: MessageEvent<WorkerRunner.PlatformMessage<I> | readonly [2]>) => {
                if (data[0] === 2) return page.postMessage([0], [])
                if (data[0] === 1) return void Deferred.doneUnsafe(closed, Exit.void)
                const handled = handler(0, data[1])
                if (Effect.isEffect(handled)) Fiber.runIn(Effect.runForkWith(services)(handled), scope)
              }
            )
            page.addEventListener("messageerror", ({ data }) => {
              Deferred.doneUnsafe(closed, Exit.fail(received("a message of the page cannot be read", data)))
            })
            // the page sends nothing until it has this
            page.postMessage([0], [])
            yield* Deferred.await(closed)
          },
          Effect.scoped
        )
      }
      return Effect.succeed(runner)
    }
  }
)
