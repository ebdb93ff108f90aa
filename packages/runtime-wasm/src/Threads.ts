import { Context } from "effect"

/** A thread of the platform that runs the source it was started with. */
export interface Thread {
  /** Sends a structured clone. In the thread, the function `listen` takes a function that gets it. */
  readonly post: (message: unknown) => void
  /** Stops it, wherever it is. */
  readonly end: () => Promise<void>
}

/** How many threads kernels run on, and how to start those besides the calling one. */
export interface ThreadsShape {
  /** With the calling thread: 1 starts none. */
  readonly count: number
  /** Starts a thread that runs a script. The script finds `listen` defined. */
  readonly start: (source: string) => Thread
  /**
   * Instructions from which a launch is divided among the threads; 30000, some ten microseconds: what takes less is over
   * before others could help.
   */
  readonly sharedInstructions?: number | undefined
  /** Milliseconds that a step waits for a thread that is at a part of it, before the device is lost; a minute. */
  readonly lateMillis?: number | undefined
}

/** The threads of a `WasmDevice`: those of Node are in `NodeThreads`, those of a page in `BrowserThreads`. Default: one. */
export const Threads = Context.Reference<ThreadsShape>("@tg/runtime-wasm/Threads", {
  defaultValue: () => ({
    count: 1,
    start: () => {
      throw new Error("one thread needs no others")
    }
  })
})
