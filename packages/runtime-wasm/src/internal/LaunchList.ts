import type { Program } from "@tg/core-uop/Program"
import { type DeviceBuffer, DeviceError, type Dispatch, misfitOf, misvaluedIn, windowOf } from "@tg/runtime/Device"
import { bad } from "@tg/runtime/HostDevice"
import type { Failure } from "./Crew.ts"
import { isFixed, type Phase, phasesOf, sharedInstructions, type Sharing, type Work, workOf } from "./division.ts"
import { Launch, Phase as Row, whole } from "./driver.ts"
import type { Host, WasmExecutable } from "./Kernels.ts"
import type { WasmBuffer, WasmMemory } from "./WasmMemory.ts"

/** A program of a plan; its work is looked at once in each run. */
interface Planned {
  readonly program: Program
  readonly isFixed: boolean
  work: Work
}

/** A dispatch, with the place of its words in the image. */
interface Entry {
  readonly planned: Planned
  readonly at: number
}

/** A variable, and the words of the image that are to have its value. */
type Places = Map<string, Array<number>>

/** Fixed launches in order, on one memory: what a step needs of them lies there as one image, for one call of each thread. */
export class LaunchList {
  private readonly entries: Array<Entry> = []
  private readonly planned = new Map<Program, Planned>()
  private readonly buffers = new Set<WasmBuffer>()
  private readonly places: Places = new Map()
  private readonly memory: WasmMemory
  private readonly host: Host
  private readonly sharing: Sharing
  private words: Array<number> = []
  /** A row for each phase, of which there are at most as many as launches, so many words; then the launches. */
  private image = new Int32Array(0)
  private rows = 0
  private imageAt = -1
  private phases: ReadonlyArray<Phase> = []
  private parts: ReadonlyArray<number> = []
  private checkedAt: number

  private constructor(memory: WasmMemory, host: Host) {
    this.memory = memory
    this.host = host
    this.sharing = { count: host.crew?.count ?? 1, worthwhile: host.crew?.sharedInstructions ?? sharedInstructions }
    this.checkedAt = memory.releases
  }

  /** The dispatches with everything that stays the same in place, or which of them is wrong. */
  static make(dispatches: ReadonlyArray<Dispatch>, memory: WasmMemory, host: Host): LaunchList | DeviceError {
    const list = new LaunchList(memory, host)
    for (const dispatch of dispatches) {
      const problem = list.add(dispatch)
      if (problem !== undefined) return problem
    }
    list.rows = Row.words * dispatches.length
    list.image = new Int32Array(list.rows + list.words.length)
    list.image.set(list.words, list.rows)
    list.words = []
    return memory.reserve(dispatches.length, list.image.byteLength) ?? list
  }

  private add({ buffers, executable }: Dispatch): DeviceError | undefined {
    const { program } = executable
    if (!("memory" in executable) || executable.memory !== this.memory.memory) {
      return bad(`${program.name} was loaded on another device; load it here`)
    }
    if (buffers.length !== program.bindings.length) {
      return bad(`${program.name} has ${program.bindings.length} bindings and got ${buffers.length} buffers`)
    }
    const pointers: Array<number> = []
    for (const [i, binding] of buffers.entries()) {
      const window = windowOf(binding)
      if (typeof window === "string") return bad(`${program.name} is given ${window}`)
      const own = this.memory.own(window.buffer)
      if (own instanceof DeviceError) return own
      const misfit = misfitOf(program, i, window)
      if (misfit !== undefined) return bad(misfit)
      pointers.push(own.offset + window.offset)
      this.buffers.add(own)
    }
    const planned = this.planned.get(program) ??
      { program, isFixed: isFixed(program), work: { iterations: -1, size: 0 } }
    this.planned.set(program, planned)
    this.entries.push({ planned, at: this.words.length })
    const { caller, number } = (executable as WasmExecutable).kernel
    const bytes = 4 * (Launch.args + pointers.length + program.vars.length)
    this.words.push(caller, number, 0, bytes, ...pointers)
    for (const name of program.vars) {
      this.places.set(name, [...this.places.get(name) ?? [], this.words.push(0) - 1])
    }
    return undefined
  }

  /** Runs all launches, one after the other. */
  run(vars: Readonly<Record<string, number>>): DeviceError | undefined {
    const problem = this.check() ?? this.fill(vars)
    if (problem !== undefined || this.entries.length === 0) return problem
    if (this.measure(vars) || this.imageAt !== this.memory.imageAt) this.divide()
    const { crew, memory: { buffer } } = this.host
    if (crew?.lost !== undefined) return this.explain(crew.lost)
    new Int32Array(buffer, this.imageAt, this.image.length).set(this.image)
    const failure = crew !== undefined && this.parts.some((n) => n > 1)
      ? crew.run({ table: this.memory.tableAt, image: this.imageAt, parts: this.parts })
      : this.runAlone()
    return failure === undefined ? undefined : this.explain(failure)
  }

  /** Whether all buffers are still there. */
  private check(): DeviceError | undefined {
    if (this.checkedAt === this.memory.releases) return undefined
    for (const buffer of this.buffers) {
      const own = this.memory.own(buffer as DeviceBuffer)
      if (own instanceof DeviceError) return own
    }
    this.checkedAt = this.memory.releases
    return undefined
  }

  private fill(values: Readonly<Record<string, number>>): DeviceError | undefined {
    for (const program of this.planned.keys()) {
      const misvalued = misvaluedIn(program, values)
      if (misvalued !== undefined) return bad(misvalued)
    }
    const { image, rows } = this
    for (const [name, places] of this.places) for (const at of places) image[rows + at] = values[name]!
    return undefined
  }

  /** Finds how much there is to do; whether it is more or less than in the last run. */
  private measure(vars: Readonly<Record<string, number>>): boolean {
    let isOther = false
    for (const planned of this.planned.values()) {
      const { isFixed, program, work } = planned
      if (isFixed && work.iterations >= 0) continue
      planned.work = workOf(program, vars, this.sharing)
      isOther ||= planned.work.iterations !== work.iterations || planned.work.size !== work.size
    }
    return isOther
  }

  /** Writes what follows from how much there is to do. */
  private divide(): void {
    const { entries, image, rows } = this
    this.imageAt = this.memory.imageAt
    const phases = phasesOf(entries.map(({ planned }) => planned.work), whole)
    const addressOf = (entry: number): number => this.imageAt + 4 * (rows + (entries[entry]?.at ?? image.length - rows))
    for (const [p, { end, first, parts, size }] of phases.entries()) {
      image.set([parts, size, addressOf(first), addressOf(end)], Row.words * p)
    }
    for (const { at, planned } of entries) image[rows + at + Launch.iterations] = planned.work.iterations
    this.phases = phases
    this.parts = phases.map(({ parts }) => parts)
  }

  /** One thread runs all launches as if they were one phase. */
  private runAlone(): Failure | undefined {
    const { host: { driver }, image, imageAt, rows } = this
    try {
      driver.launches(imageAt + 4 * rows, imageAt + 4 * image.length, 0, whole)
      return undefined
    } catch (error) {
      return { trap: String(error), at: driver.at.value as number }
    }
  }

  private explain(failure: Failure): DeviceError {
    if ("trap" in failure) {
      const at = ((failure.at >>> 0) - this.imageAt) / 4 - this.rows
      const name = this.entries.find((entry) => entry.at === at)?.planned.program.name ?? "a kernel"
      return bad(
        `${name} trapped: ${failure.trap}; a buffer is smaller than the kernel expects or a variable out of its bounds`
      )
    }
    const name = this.entries[this.phases[failure.phase]?.first ?? -1]?.planned.program.name ?? "a kernel"
    return new DeviceError({
      reason: "DeviceLost",
      message:
        `a thread did not finish its part of ${name} within ${failure.late} ms: it was ended, or gets no time of a ` +
        `processor; make the device anew, with fewer threads if others use this machine`
    })
  }
}
