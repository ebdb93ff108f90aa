/**
 * What a thread other than the device's own does, written so that its source can be sent to it: these functions use nothing
 * but their arguments, each other and the language.
 *
 * All threads share a block of 32-bit words. The device's own thread writes a step into the kernels' memory, says here where it is,
 * makes `turn` odd, and takes part in it (`driver.ts`). When it is done, it makes `turn` even.
 */

/** Where the words are. */
export const Cell = {
  /** Odd while a step is handed out; another number each time. */
  turn: 0,
  /** Threads that are taking part in the step, or look whether it is over. */
  active: 1,
  /** Threads that sleep until `turn` changes. */
  asleep: 2,
  /** Messages sent to each thread. */
  posted: 3,
  /** Of the step: the address of its table, its number, and whether more than its end is of interest. */
  table: 4,
  epoch: 5,
  /** Steps that other threads have taken part in since they were started. */
  joined: 6,
  /** Characters of what made a part fail, 0 if none did, and the address of the launch. */
  failure: 7,
  failedAt: 8,
  text: 16,
  mostText: 256
} as const

/** What a thread has of a driver, and the table of functions that it calls. */
export interface Driving {
  readonly drive: (table: number, epoch: number, mayWait: number) => number
  readonly at: { readonly value: number }
}

/** Notes why a step failed, unless another thread did, and ends it. */
export const noteFailure = (
  cells: Int32Array,
  cell: typeof Cell,
  { at, epoch, error, failed }: {
    readonly at: number
    readonly epoch: number
    readonly error: unknown
    /** The word of the table that ends a step. */
    readonly failed: Int32Array
  }
): void => {
  if (Atomics.compareExchange(cells, cell.failure, 0, -1) === 0) {
    const text = String(error).slice(0, cell.mostText)
    for (let i = 0; i < text.length; i++) cells[cell.text + i] = text.charCodeAt(i)
    cells[cell.failedAt] = at
    Atomics.store(cells, cell.failure, Math.max(1, text.length))
  }
  Atomics.store(failed, 0, epoch)
}

/** A message to a thread: what is shared, with the driver, or the next function of the table. */
export type Message =
  | { readonly cells: Int32Array; readonly memory: WebAssembly.Memory; readonly driver: WebAssembly.Module }
  | { readonly module: WebAssembly.Module }

/**
 * The life of a thread: takes messages, and between them, parts in steps. It looks for work for a while, then sleeps; it can only
 * take a message when it looks no more.
 */
export const attend = (
  listen: (onMessage: (message: Message) => void) => void,
  cell: typeof Cell,
  note: typeof noteFailure
): void => {
  // polls before a thread sleeps, or looks at the clock: some ten microseconds
  const patience = 20_000
  // a thread looks for the next step for so much of the time that the last one took: whoever draws the next token takes about as long,
  // and waking a thread takes some tenths of a millisecond. At most so many milliseconds
  const lookingShare = 1 / 16
  const longestLook = 10
  const kernels = new WebAssembly.Table({ element: "anyfunc", initial: 0 })
  let shared:
    | { readonly cells: Int32Array; readonly memory: WebAssembly.Memory; readonly driving: Driving }
    | undefined
  let received = 0

  /** Takes part in the step of a turn, whatever is left of it. */
  const join = ({ cells, driving, memory }: NonNullable<typeof shared>, turn: number): void => {
    const table = cells[cell.table]! >>> 0
    const epoch = cells[cell.epoch]!
    try {
      while (driving.drive(table, epoch, 1) >= 0 && Atomics.load(cells, cell.turn) === turn);
    } catch (error) {
      const failed = new Int32Array(memory.buffer, table + 4, 1)
      note(cells, cell, { at: driving.at.value, epoch, error, failed })
    }
  }

  const work = (own: NonNullable<typeof shared>): void => {
    const { cells } = own
    let seen = Atomics.load(cells, cell.turn)
    if (seen % 2 !== 0) seen--
    let looksUntil = 0
    for (let polls = 0; Atomics.load(cells, cell.posted) === received; polls++) {
      const turn = Atomics.load(cells, cell.turn)
      if (turn === seen) {
        if (polls < patience) continue
        if (Date.now() >= looksUntil) {
          Atomics.add(cells, cell.asleep, 1)
          Atomics.wait(cells, cell.turn, turn)
          Atomics.sub(cells, cell.asleep, 1)
        }
      } else {
        seen = turn
        if (turn % 2 !== 0) {
          Atomics.add(cells, cell.active, 1)
          // the step may have ended before it was known that we take part, or a kernel of it not be here yet
          if (Atomics.load(cells, cell.turn) === turn && Atomics.load(cells, cell.posted) === received) {
            Atomics.add(cells, cell.joined, 1)
            const began = Date.now()
            join(own, turn)
            const now = Date.now()
            looksUntil = now + Math.min(longestLook, Math.floor(lookingShare * (now - began)))
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
      const { exports } = new WebAssembly.Instance(message.module, { env: { memory: shared!.memory, kernels } })
      kernels.set(kernels.grow(1), exports["run"])
    } else {
      const { cells, driver, memory } = message
      const { at, drive } = new WebAssembly.Instance(driver, { env: { memory, kernels } }).exports
      shared = { cells, memory, driving: { at: at as Driving["at"], drive: drive as Driving["drive"] } }
    }
    if (shared !== undefined) work(shared)
  })
}
