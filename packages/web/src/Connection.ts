/** The page's end: a worker, and what can be asked of it. */
import { Effect, type Scope, type Stream } from "effect"
import type { ModelError } from "./ModelError.ts"
import { kinds, type Requests } from "./Protocol.ts"
import * as Page from "./internal/page.ts"

/** Starts the worker whose script lies beside this module's. */
export const startWorker = (): Worker =>
  new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "tg" })

/** What can be asked of a worker. */
export type Client = {
  readonly [K in keyof Requests]: (
    payload: Requests[K]["payload"]
  ) => Requests[K]["kind"] extends "many" ? Stream.Stream<Requests[K]["answer"], ModelError>
    : Effect.Effect<Requests[K]["answer"], ModelError>
}

/** Bytes that a request gives away. */
const movedBy = (payload: unknown): Array<Transferable> => {
  const { source } = (payload ?? {}) as Partial<Requests["Open"]["payload"]>
  return source?._tag === "Bytes" ? [source.bytes] : []
}

/** A worker of its own. It ends with the scope. */
export const connect = (worker: () => Worker): Effect.Effect<Client, ModelError, Scope.Scope> =>
  Effect.map(Page.connect(worker), (asker) =>
    Object.fromEntries(
      Object.entries(kinds).map(([name, kind]) => [
        name,
        (payload: unknown) => asker[kind](name, payload, movedBy(payload))
      ])
    ) as unknown as Client)
