/** Whether the device of a page computes what it should. What it does not is avoided by the models of this origin from then on. */
import type { Family, Verdict } from "@tg/self-test/Verdict"
import { Effect, Stream } from "effect"
import { connect, startWorker } from "./Connection.ts"
import { ModelError } from "./ModelError.ts"
import type * as Protocol from "./Protocol.ts"

export { report, type Verdict } from "@tg/self-test/Verdict"

/** Which device, and how to reach it. */
export interface Options extends Omit<typeof Protocol.OpenOptions.Type, "context"> {
  /** Starts the worker, where its script is not `worker.js` beside this one. */
  readonly worker?: (() => Worker) | undefined
}

/** How far a test is. */
export type Testing = Omit<typeof Protocol.Testing.Type, "_tag">

const endedEarly = new ModelError({
  reason: "WorkerFailed",
  message:
    "the worker ended before the test had; the device may have taken the browser's GPU process with it, so choose another"
})

/** Tests a device. `vectors` is the address of the folder `vectors` of `@tg/self-test`. */
export const run = (
  vectors: string,
  { families, onProgress = () => {}, worker = startWorker, ...options }: Options & {
    /** Some of them alone: then nothing is kept of what is found. */
    readonly families?: ReadonlyArray<Family> | undefined
    readonly onProgress?: ((testing: Testing) => void) | undefined
  } = {}
): Effect.Effect<Verdict, ModelError> =>
  Effect.scoped(Effect.gen(function*() {
    const client = yield* connect(worker)
    const verdict = yield* client.SelfTest({ options, families, vectors: new URL(vectors, location.href).href }).pipe(
      Stream.runFold((): Verdict | undefined => undefined, (last, event) => {
        if (event._tag === "Tested") return event.verdict
        onProgress(event)
        return last
      })
    )
    return verdict ?? (yield* endedEarly)
  }))

/** What the last test of a device has found, if it is kept. */
export const last = (
  { worker = startWorker, ...options }: Options = {}
): Effect.Effect<Verdict | undefined, ModelError> =>
  Effect.scoped(
    Effect.flatMap(connect(worker), (client) => client.Verdict({ options }))
  )

/** The same for programs without Effect. Failures are thrown. */
export const promises = {
  run: (vectors: string, options?: Parameters<typeof run>[1]): Promise<Verdict> =>
    Effect.runPromise(run(vectors, options)),
  last: (options?: Options): Promise<Verdict | undefined> => Effect.runPromise(last(options))
}
