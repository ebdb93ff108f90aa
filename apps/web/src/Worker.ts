/** The worker with the engine. */
import * as Trusted from "./Trusted.ts"

/** Starts the worker whose script lies beside the page's. */
export const startWorker = (): Worker =>
  new Worker(Trusted.script(new URL("./worker.js", import.meta.url).href), { type: "module", name: "tg" })
