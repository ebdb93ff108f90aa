import type { Thread, ThreadsShape } from "../Threads.ts"
import { attend, Cell, type Message, noteFailure } from "./attend.ts"
import { type Driver, Gate, Header, lineBytes } from "./driver.ts"

/** A step that lies in the memory, but for its header and its gates. */
export interface Shared {
  readonly table: number
  readonly image: number
  /** Of each phase. */
  readonly parts: ReadonlyArray<number>
}

/** Why a step did not end well: the launch at this address trapped, or a thread was late with a phase by so many milliseconds. */
export type Failure =
  | { readonly trap: string; readonly at: number }
  | { readonly late: number; readonly phase: number }

/**
 * The threads of a device, seen from the one that owns it. They are started by the first step that is worth it, and a
 * step does not wait for them to be ready: the owner takes part, and takes all parts that nobody else takes.
 */
export class Crew {
  readonly count: number
  readonly sharedInstructions: number | undefined
  private readonly start: ThreadsShape["start"]
  private readonly memory: WebAssembly.Memory
  private readonly module: WebAssembly.Module
  private readonly driver: Driver
  private readonly lateMillis: number
  private readonly cells = new Int32Array(new SharedArrayBuffer(4 * (Cell.text + Cell.mostText)))
  private readonly modules: Array<WebAssembly.Module> = []
  /** Set once a thread did not come back: what it does to the memory, nobody knows. */
  lost: Failure | undefined
  private threads: ReadonlyArray<Thread> | undefined
  private epoch = 0

  constructor(
    { count, lateMillis = 60_000, sharedInstructions, start }: ThreadsShape,
    own: { readonly memory: WebAssembly.Memory; readonly module: WebAssembly.Module; readonly driver: Driver }
  ) {
    this.count = count
    this.sharedInstructions = sharedInstructions
    this.start = start
    this.lateMillis = lateMillis
    this.memory = own.memory
    this.module = own.module
    this.driver = own.driver
  }

  /** How often other threads have taken part in a step. */
  get joined(): number {
    return Atomics.load(this.cells, Cell.joined)
  }

  /** Makes the next function of the table known. */
  add(module: WebAssembly.Module): void {
    if (this.threads !== undefined) this.post({ module })
    this.modules.push(module)
  }

  /** Runs a step to its end. Returns why it failed, if it did. */
  run(step: Shared): Failure | undefined {
    if (this.threads === undefined) this.open()
    const { cells } = this
    const words = this.publish(step)
    cells[Cell.table] = step.table
    cells[Cell.epoch] = this.epoch
    cells[Cell.failure] = 0
    this.turn(1)
    const late = this.takePart(step, words)
    Atomics.add(cells, Cell.turn, 1)
    if (late === undefined && Atomics.load(cells, Cell.failure) === 0) return undefined
    // memory may be given back only when nobody works on it any more
    this.lost = late ?? this.waitForOthers()
    return this.lost ?? this.failure()
  }

  async end(): Promise<void> {
    await Promise.all((this.threads ?? []).map((thread) => thread.end()))
  }

  /** Opens the gates of a step. A gate gets its number first: then nobody who has another one takes parts. */
  private publish({ image, parts, table }: Shared): Int32Array {
    this.epoch = this.epoch === -1 ? 1 : this.epoch + 1 | 0
    const words = new Int32Array(this.memory.buffer, table, (1 + parts.length) * lineBytes / 4)
    words[Header.phases] = parts.length
    words[Header.image] = image
    for (const [p, count] of parts.entries()) {
      const gate = (1 + p) * lineBytes / 4
      Atomics.store(words, gate + Gate.epoch, this.epoch)
      Atomics.store(words, gate + Gate.untaken, count)
      Atomics.store(words, gate + Gate.undone, count)
    }
    Atomics.store(words, Header.epoch, this.epoch)
    return words
  }

  private takePart({ table }: Shared, words: Int32Array): Failure | undefined {
    const { cells, driver, epoch } = this
    let since = performance.now()
    let seen = ""
    try {
      for (;;) {
        const phase = driver.drive(table, epoch, mayWait ? 1 : 0)
        if (phase < 0) return undefined
        const state = `${phase} ${words[(1 + phase) * lineBytes / 4 + Gate.undone]}`
        const now = performance.now()
        if (state !== seen) {
          seen = state
          since = now
        } else if (now - since > this.lateMillis) {
          Atomics.store(words, Header.failed, epoch)
          return { late: this.lateMillis, phase }
        }
      }
    } catch (error) {
      noteFailure(cells, Cell, { at: driver.at.value, epoch, error, failed: words.subarray(Header.failed) })
      return undefined
    }
  }

  private failure(): Failure {
    const { cells } = this
    const text = cells.subarray(Cell.text, Cell.text + Atomics.load(cells, Cell.failure))
    return { trap: String.fromCharCode(...text), at: cells[Cell.failedAt]! }
  }

  private open(): void {
    const source = `(${attend.toString()})(listen, ${JSON.stringify(Cell)}, ${noteFailure.toString()})`
    this.threads = Array.from({ length: this.count - 1 }, () => this.start(source))
    this.post({ cells: this.cells, memory: this.memory, driver: this.module })
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

  /** Of a step that failed: threads end the part that they are at. */
  private waitForOthers(): Failure | undefined {
    const { cells } = this
    const since = performance.now()
    for (;;) {
      const active = Atomics.load(cells, Cell.active)
      if (active === 0) return undefined
      if (mayWait) Atomics.wait(cells, Cell.active, active, 10)
      if (performance.now() - since > this.lateMillis) return { late: this.lateMillis, phase: -1 }
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
