/** Models that the browser keeps: the list, and what is on its way into it. */
import { signal } from "@preact/signals"
import * as Files from "@tg/web/Files"
import type { Kept } from "@tg/web/Protocol"
import { Effect, Fiber } from "effect"
import * as Local from "./Local.ts"
import { startWorker } from "./Worker.ts"

/** What is kept, whole or in part. */
export const all = signal<ReadonlyArray<Kept>>([])
/** What is being fetched. */
export const coming = signal<(Files.Coming & { readonly name: string }) | undefined>(undefined)
/** Why the last request failed. */
export const trouble = signal<string | undefined>(undefined)

const options: Files.Options = { worker: startWorker }

const noted = async <A>(effect: Effect.Effect<A, { readonly message: string }>): Promise<A | undefined> => {
  trouble.value = undefined
  try {
    return await Effect.runPromise(effect)
  } catch (error) {
    trouble.value = error instanceof Error ? error.message : String(error)
    return undefined
  }
}

/** Looks again at what is kept. */
export const refresh = async (): Promise<void> => {
  all.value = await noted(Files.list(options)) ?? all.value
}

/** Takes a model out of the browser. */
export const forget = async (name: string): Promise<void> => {
  await noted(Files.forget(name, options))
  await refresh()
}

let fetching: Fiber.Fiber<Kept, unknown> | undefined

/** Fetches a model into the browser, and loads it then. What came of an earlier attempt is not fetched again. */
export const keep = async (name: string): Promise<void> => {
  // asks the browser not to throw it away when the disk is full; it decides by itself
  void navigator.storage.persist().catch(() => {})
  coming.value = { name, doneBytes: 0, totalBytes: 0, isWaiting: false }
  fetching = Effect.runFork(Files.keep(name, { ...options, onProgress: (event) => coming.value = { name, ...event } }))
  const kept = await noted(Fiber.join(fetching).pipe(Effect.mapError(asError)))
  coming.value = undefined
  if (kept !== undefined) await Local.use({ kind: "kept", name: kept.name })
  await refresh()
}

const asError = (error: unknown): Error => error instanceof Error ? error : new Error(String(error))

/** Ends fetching. What came stays. */
export const stop = (): void => {
  if (fetching !== undefined) Effect.runFork(Fiber.interrupt(fetching))
  coming.value = undefined
}
