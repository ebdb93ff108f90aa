const nobody = -1
const many = -2
/** Stands for all threads in their atomic operations, which do not race with each other. */
export const atomics = -3

/**
 * A race detector for one buffer: who touched each element in the current phase, that is since the last barrier. Two threads race
 * if they touch one element in one phase and one of them writes. Arrays are per element; an old phase number means untouched.
 */
export class Races {
  private readonly name: string
  private readonly writer: Int32Array
  private readonly reader: Int32Array
  private readonly writePhase: Int32Array
  private readonly readPhase: Int32Array
  private phase = 1
  private firstPhase = 1

  constructor(name: string, length: number) {
    this.name = name
    this.writer = new Int32Array(length).fill(nobody)
    this.reader = new Int32Array(length).fill(nobody)
    this.writePhase = new Int32Array(length)
    this.readPhase = new Int32Array(length)
  }

  /** All accesses so far are visible to all threads. */
  barrier(): void {
    this.phase++
  }

  /** The memory passes to another workgroup: nothing in it has been written. */
  restart(): void {
    this.phase++
    this.firstPhase = this.phase
  }

  isWritten(at: number): boolean {
    return this.writePhase[at]! >= this.firstPhase
  }

  read(at: number, thread: number): void {
    if (this.writePhase[at] === this.phase && this.writer[at] !== thread) {
      throw new Error(
        `${this.name}: ${this.by(thread)} reads element ${at}, which ${
          this.by(this.writer[at]!)
        } wrote with no BARRIER between`
      )
    }
    const other = this.readPhase[at] === this.phase && this.reader[at] !== thread
    this.readPhase[at] = this.phase
    this.reader[at] = other ? many : thread
  }

  /** `same`: the element keeps its value, which is harmless where memory is coherent but never ordered. */
  write(at: number, thread: number, same: boolean): void {
    if (this.readPhase[at] === this.phase && this.reader[at] !== thread && !same) {
      throw new Error(
        `${this.name}: ${this.by(thread)} writes element ${at}, which ${
          this.by(this.reader[at]!)
        } read with no BARRIER between`
      )
    }
    if (this.writePhase[at] === this.phase && this.writer[at] !== thread && !same) {
      throw new Error(
        `${this.name}: ${this.by(thread)} writes element ${at}, which ${
          this.by(this.writer[at]!)
        } wrote with no BARRIER between`
      )
    }
    const other = this.writePhase[at] === this.phase && this.writer[at] !== thread
    this.writePhase[at] = this.phase
    this.writer[at] = other ? many : thread
  }

  private by(thread: number): string {
    return thread === many ? "several threads" : thread === atomics ? "an atomic operation" : `thread ${thread}`
  }
}

/** What a workgroup has written of an argument that it also reads. Behind a BARRIER it reads its own writes, whoever else writes the same. */
export class OwnWrites {
  private readonly since = new Set<number>()
  private readonly before = new Set<number>()

  write(at: number): void {
    this.since.add(at)
  }

  barrier(): void {
    for (const at of this.since) this.before.add(at)
    this.since.clear()
  }

  isVisible(at: number): boolean {
    return this.before.has(at)
  }
}
