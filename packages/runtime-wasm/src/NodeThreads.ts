/** Threads of Node. The class of its workers is an argument, so that this too runs where there is no Node. */
import { Layer } from "effect"
import { type Thread, Threads, type ThreadsShape } from "./Threads.ts"

/** What `Worker` of `node:worker_threads` has. */
export interface NodeWorker {
  readonly postMessage: (message: unknown, transfer: []) => void
  readonly terminate: () => Promise<unknown>
  readonly unref: () => void
}
/** `Worker` of `node:worker_threads`. */
export type NodeWorkerClass = new(
  source: string,
  options: { readonly eval: true; readonly name: string; readonly execArgv: Array<string> }
) => NodeWorker

const prelude = `const { parentPort } = require("node:worker_threads");
const listen = (onMessage) => parentPort.on("message", onMessage);
`

const start = (worker: NodeWorkerClass) => (source: string): Thread => {
  const thread = new worker(prelude + source, { eval: true, name: "kernels", execArgv: [] })
  // one that only waits for work does not keep the program running
  thread.unref()
  return {
    post: (message) => thread.postMessage(message, []),
    end: async () => {
      await thread.terminate()
    }
  }
}

/** So many threads, with the calling one. */
export const layer = (
  worker: NodeWorkerClass,
  count: number,
  options: Pick<ThreadsShape, "sharedInstructions" | "lateMillis"> = {}
): Layer.Layer<never> => Layer.succeed(Threads, { count, start: start(worker), ...options })
