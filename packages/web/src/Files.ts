/** Models that the browser keeps for this page's origin: fetched once, checked, there for all its tabs, also without a network. */
import { Effect, Stream } from "effect"
import { connect, startWorker } from "./Connection.ts"
import { ModelError } from "./ModelError.ts"
import type * as Protocol from "./Protocol.ts"

/** How to reach them. */
export interface Options {
  /** Starts the worker, where its script is not `worker.js` beside this one. */
  readonly worker?: (() => Worker) | undefined
}

/** A model on its way. */
export type Coming = Omit<typeof Protocol.Coming.Type, "_tag">

const using = <A, E>(
  { worker = startWorker }: Options,
  use: (client: Effect.Success<ReturnType<typeof connect>>) => Effect.Effect<A, E>
): Effect.Effect<A, E | ModelError> => Effect.scoped(Effect.flatMap(connect(worker), use))

/** Fetches a model by its name or address, or what is missing of it. What comes is kept also if this is interrupted. */
export const keep = (
  name: string,
  { onProgress = () => {}, ...options }: Options & { readonly onProgress?: ((coming: Coming) => void) | undefined } = {}
): Effect.Effect<Protocol.Kept, ModelError> =>
  using(options, (client) =>
    client.Keep({ name }).pipe(
      Stream.runFold((): Protocol.Kept | undefined => undefined, (last, event) => {
        if (event._tag === "Kept") return event
        onProgress(event)
        return last
      }),
      Effect.flatMap((kept) => kept === undefined ? Effect.fail(endedEarly) : Effect.succeed(kept))
    ))

const endedEarly = new ModelError({
  reason: "WorkerFailed",
  message: "the worker ended before the model was here; what came is kept, so go on with it"
})

/** What is kept. */
export const list = (options: Options = {}): Effect.Effect<ReadonlyArray<Protocol.Kept>, ModelError> =>
  using(options, (client) => client.Kept())

/** Forgets a model; answers with the bytes that are free again. */
export const forget = (name: string, options: Options = {}): Effect.Effect<number, ModelError> =>
  using(options, (client) => client.Forget({ name }))

/** The same for programs without Effect. Failures are thrown. */
export const promises = {
  keep: (
    name: string,
    { signal, ...options }: Parameters<typeof keep>[1] & { readonly signal?: AbortSignal | undefined } = {}
  ): Promise<Protocol.Kept> => Effect.runPromise(keep(name, options), { signal }),
  list: (options: Options = {}): Promise<ReadonlyArray<Protocol.Kept>> => Effect.runPromise(list(options)),
  forget: (name: string, options: Options = {}): Promise<number> => Effect.runPromise(forget(name, options))
}
