import type { Thread, ThreadsShape } from "../Threads.ts"
import { attend, Cell, type Message, type Run, takeParts } from "./part.ts"

/** A launch whose iterations are divided among threads. */
export interface Shared {
  readonly run: Run
  /** Number of the kernel: in the order of `add`. */
  readonly kernel: number
  readonly args: ReadonlyArray<number>
  readonly iterations: number
  /** Iterations of a part. */
  readonly size: number
}

// Looks at a counter so often before it sleeps until the counter changes.
const patience = 20_000

/**
 * The threads of a device, seen from the one that owns it. They are started by the first launch that is worth it, and a
 * launch does not wait for them to be ready: the owner takes part, and takes all parts that nobody else takes.
 */
export class Crew {
  readonly count: number
  readonly sharedInstructions: number | undefined
  private readonly start: ThreadsShape["start"]
  private readonly memory: WebAssembly.Memory
  private readonly cells = new Int32Array(new SharedArrayBuffer(4 * 1024))
  private readonly modules: Array<WebAssembly.Module> = []
  private threads: ReadonlyArray<Thread> | undefined

  constructor({ count, sharedInstructions, start }: ThreadsShape, memory: WebAssembly.Memory) {
    this.count = count
    this.sharedInstructions = sharedInstructions
    this.start = start
    this.memory = memory
  }

  /** Parts that other threads have done. */
  get partsOfOthers(): number {
    return Atomics.load(this.cells, Cell.done)
  }

  /** Makes a kernel known; returns its number. */
  add(module: WebAssembly.Module): number {
    if (this.threads !== undefined) this.post({ module })
    return this.modules.push(module) - 1
  }

  /** Runs a launch to its end. Returns why it failed, if it did. */
  run(launch: Shared): string | undefined {
    if (this.threads === undefined) this.open()
    const { cells } = this
    cells[Cell.kernel] = launch.kernel
    cells[Cell.iterations] = launch.iterations
    cells[Cell.size] = launch.size
    cells[Cell.count] = launch.args.length
    cells.set(launch.args, Cell.args)
    cells[Cell.failure] = 0
    Atomics.store(cells, Cell.next, 0)
    this.turn(1)
    takeParts(cells, launch.run, Cell)
    Atomics.add(cells, Cell.turn, 1)
    this.waitForOthers()
    const length = cells[Cell.failure]!
    return length === 0 ? undefined : String.fromCharCode(...cells.subarray(Cell.text, Cell.text + length))
  }

  async end(): Promise<void> {
    await Promise.all((this.threads ?? []).map((thread) => thread.end()))
  }

  private open(): void {
    const source = `(${attend.toString()})(listen, ${JSON.stringify(Cell)}, ${takeParts.toString()})`
    this.threads = Array.from({ length: this.count - 1 }, () => this.start(source))
    this.post({ cells: this.cells, memory: this.memory })
    for (const module of this.modules) this.post({ module })
  }

  /**
   * A thread takes messages only when it does not look for work. It stops looking when it has received fewer than were
   * posted, so they are counted before they are sent.
   */
  private post(message: Message): void {
    Atomics.add(this.cells, Cell.posted, 1)
    this.turn(2)
    for (const thread of this.threads!) thread.post(message)
  }

  private turn(by: number): void {
    Atomics.add(this.cells, Cell.turn, by)
    if (Atomics.load(this.cells, Cell.asleep) > 0) Atomics.notify(this.cells, Cell.turn)
  }

  private waitForOthers(): void {
    const { cells } = this
    for (let polls = 0;; polls++) {
      const active = Atomics.load(cells, Cell.active)
      if (active === 0) return
      if (polls > patience && mayWait) Atomics.wait(cells, Cell.active, active, 10)
    }
  }
}

/** A page's own thread may not sleep; it looks on. */
const mayWait = ((): boolean => {
  try {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 0)
    return true
  } catch {
    return false
  }
})()
