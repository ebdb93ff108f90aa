/** The page's end: a worker, and what can be asked of it. */
import { Effect, Layer } from "effect"
import { RpcClient } from "effect/rpc"
import type { RpcClientError } from "effect/rpc/RpcClientError"
import { ModelError } from "./ModelError.ts"
import { Requests } from "./Protocol.ts"
import { layerPage } from "./internal/page.ts"
import * as scheduling from "./internal/scheduling.ts"

/** Starts the worker whose script lies beside this module's. */
export const startWorker = (): Worker =>
  new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "tg" })

/** An error of the worker, or of the way there. */
export const failed = (error: ModelError | RpcClientError): ModelError =>
  error._tag === "ModelError"
    ? error
    : new ModelError({ reason: "WorkerFailed", message: `${error.reason.message}; open the model again` })

const notStarted = (error: { readonly message: string }): ModelError =>
  new ModelError({ reason: "WorkerFailed", message: error.message })

/** A worker of its own. It ends with the scope. */
export const connect = Effect.fnUntraced(function*(worker: () => Worker) {
  const protocol = yield* Layer.build(
    RpcClient.layerProtocolWorker({ size: 1, concurrency: Number.MAX_SAFE_INTEGER }).pipe(
      Layer.provide(layerPage(worker))
    )
  ).pipe(Effect.mapError(notStarted))
  return yield* Effect.provide(RpcClient.make(Requests), protocol)
}, Effect.provide(scheduling.layer))

/** What can be asked of a worker. */
export type Client = Effect.Success<ReturnType<typeof connect>>
