/** The worker with the engine. */
import * as Early from "./Early.ts"
import * as Trusted from "./Trusted.ts"

/** Starts the worker whose script lies beside the page's; the first one may have been started before. */
export const startWorker = (): Worker =>
  Early.take("worker") ??
    new Worker(Trusted.script(new URL("./worker.js", import.meta.url).href), { type: "module", name: "tg" })
