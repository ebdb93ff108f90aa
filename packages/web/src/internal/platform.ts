/** Workers of a browser, for the worker modules of Effect: the worker's end. */
import { Deferred, Effect, Exit, Fiber, Layer } from "effect"
import { WorkerError, WorkerReceiveError } from "effect/workers/WorkerError"
import * as WorkerRunner from "effect/workers/WorkerRunner"
import { mail } from "./scheduling.ts"

/** A message that came to nothing. */
export const received = (message: string, cause?: unknown): WorkerError =>
  new WorkerError({ reason: new WorkerReceiveError({ message, cause }) })

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
              ({ data }: MessageEvent<WorkerRunner.PlatformMessage<I> | readonly [2, Int32Array]>) => {
                if (data[0] === 2) {
                  mail.sent = data[1]
                  mail.come = 0
                  return page.postMessage([0], [])
                }
                mail.come++
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
