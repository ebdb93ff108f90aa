/** Threads of a page: workers. Shared memory needs a page that is cross-origin isolated. */
import { Layer } from "effect"
import { type Thread, Threads } from "./Threads.ts"

const prelude = `const listen = (onMessage) => { self.onmessage = (event) => onMessage(event.data) };
`

const start = (source: string): Thread => {
  const url = URL.createObjectURL(new Blob([prelude + source], { type: "text/javascript" }))
  const worker = new Worker(url)
  URL.revokeObjectURL(url)
  return {
    post: (message) => worker.postMessage(message, []),
    end: () => Promise.resolve(worker.terminate())
  }
}

/** So many threads, with the calling one; without a number, one for each core. */
export const layer = (count: number = navigator.hardwareConcurrency): Layer.Layer<never> =>
  Layer.succeed(Threads, { count, start })
