/**
 * What the threads of a device do together, written so that its source can be sent to them: these functions use nothing
 * but their arguments, each other and the language.
 *
 * All share a block of 32-bit words. The device's own thread hands out launches one after the other: it describes one,
 * makes `turn` odd, and takes part. A launch is divided into parts of `size` iterations; whoever adds one to `next` has
 * that part. To end it, it makes `turn` even and waits until nobody is `active`.
 */

/** Where the words are. */
export const Cell = {
  /** Odd while a launch is handed out; another number each time. */
  turn: 0,
  /** Threads that are taking part in the launch. */
  active: 1,
  /** Threads that sleep until `turn` changes. */
  asleep: 2,
  /** Messages sent to each thread. */
  posted: 3,
  /** The next part that nobody has taken. */
  next: 4,
  /** Parts that threads other than the device's own have done since they were started. */
  done: 5,
  /** Of the launch: number of its kernel, iterations, iterations of a part, number of arguments. */
  kernel: 6,
  iterations: 7,
  size: 8,
  count: 9,
  /** Characters of what made a part fail, 0 if none did. */
  failure: 10,
  text: 16,
  args: 272
} as const

/** The compiled kernel: iterations from and to, then its arguments. */
export type Run = (...args: ReadonlyArray<number>) => void

/** Takes parts of the launch until there are none. A failure is noted, and ends it. Returns how many were done. */
export const takeParts = (cells: Int32Array, run: Run, cell: typeof Cell): number => {
  const iterations = cells[cell.iterations]!
  const size = cells[cell.size]!
  const args = [0, 0, ...cells.subarray(cell.args, cell.args + cells[cell.count]!)]
  for (let done = 0;; done++) {
    const from = Atomics.add(cells, cell.next, 1) * size
    if (from >= iterations) return done
    args[0] = from
    args[1] = Math.min(from + size, iterations)
    try {
      run(...args)
    } catch (error) {
      const text = String(error).slice(0, cell.args - cell.text)
      for (let i = 0; i < text.length; i++) cells[cell.text + i] = text.charCodeAt(i)
      Atomics.store(cells, cell.failure, text.length)
      Atomics.store(cells, cell.next, iterations)
      return done
    }
  }
}

/** A message to a thread: the shared memory, or the next kernel. */
export type Message =
  | { readonly cells: Int32Array; readonly memory: WebAssembly.Memory }
  | { readonly module: WebAssembly.Module }

/**
 * The life of a thread: takes messages, and between them, parts. It looks for work for a while, then sleeps; it can only
 * take a message when it looks no more.
 */
export const attend = (
  listen: (onMessage: (message: Message) => void) => void,
  cell: typeof Cell,
  take: typeof takeParts
): void => {
  // polls before a thread sleeps: some ten microseconds more than the host needs between two launches
  const patience = 20_000
  const kernels: Array<Run> = []
  let shared: { readonly cells: Int32Array; readonly memory: WebAssembly.Memory } | undefined
  let received = 0

  const work = (cells: Int32Array): void => {
    let seen = Atomics.load(cells, cell.turn)
    if (seen % 2 !== 0) seen--
    for (let polls = 0; Atomics.load(cells, cell.posted) === received; polls++) {
      const turn = Atomics.load(cells, cell.turn)
      if (turn === seen) {
        if (polls < patience) continue
        Atomics.add(cells, cell.asleep, 1)
        Atomics.wait(cells, cell.turn, turn)
        Atomics.sub(cells, cell.asleep, 1)
      } else {
        seen = turn
        if (turn % 2 !== 0) {
          Atomics.add(cells, cell.active, 1)
          // the launch may have ended before it was known that we take part, or its kernel not be here yet
          if (Atomics.load(cells, cell.turn) === turn && Atomics.load(cells, cell.posted) === received) {
            Atomics.add(cells, cell.done, take(cells, kernels[cells[cell.kernel]!]!, cell))
          }
          Atomics.sub(cells, cell.active, 1)
          Atomics.notify(cells, cell.active)
        }
      }
      polls = 0
    }
  }

  listen((message) => {
    received++
    if ("module" in message) {
      const { exports } = new WebAssembly.Instance(message.module, { env: { memory: shared!.memory } })
      kernels.push(exports["run"] as Run)
    } else shared = message
    if (shared !== undefined) work(shared.cells)
  })
}
