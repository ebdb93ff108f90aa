import { evaluateIndex, type Program } from "@tg/core-uop/Program"
import {
  type DeviceBuffer,
  DeviceError,
  type Dispatch,
  type Executable,
  misfitOf,
  misvaluedIn,
  windowOf
} from "@tg/runtime/Device"
import { bad } from "@tg/runtime/HostDevice"
import type { Crew } from "./Crew.ts"
import type { Run } from "./part.ts"
import type { WasmBuffer, WasmMemory } from "./WasmMemory.ts"

/** A kernel with its place among those of the device. */
export interface Kernel {
  readonly run: Run
  readonly number: number
}

/** A program made ready for one memory. */
export interface WasmExecutable extends Executable {
  readonly memory: WebAssembly.Memory
  readonly kernel: Kernel
}

const hash = (bytes: Uint8Array): number => {
  let h = 0x811c9dc5
  for (const b of bytes) h = Math.imul(h ^ b, 0x01000193)
  return h
}

const equal = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && a.every((x, i) => x === b[i])

/** Kernels by their code. They have no state, so one instance for each thread serves all programs with this code. */
export class Kernels {
  private readonly byHash = new Map<number, Array<{ readonly code: Uint8Array; readonly kernel: Kernel }>>()

  find(code: Uint8Array): Kernel | undefined {
    return this.byHash.get(hash(code))?.find((known) => equal(known.code, code))?.kernel
  }

  keep(code: Uint8Array, kernel: Kernel): void {
    const key = hash(code)
    const list = this.byHash.get(key) ?? []
    list.push({ code: code.slice(), kernel })
    this.byHash.set(key, list)
  }
}

/** How much of a program there is to do, for one set of variables. */
interface Work {
  iterations: number
  /** Iterations of a part when it is divided among threads; all of them when it is not. */
  size: number
}

/** A program of a plan; its work is looked at once in each run. */
interface Planned {
  readonly program: Program
  readonly kernel: Kernel
  readonly work: Work
}

/** A dispatch with its pointers in place. Variables are filled in for each run. */
interface Launch {
  readonly planned: Planned
  readonly args: Array<number>
  readonly vars: ReadonlyArray<{ readonly name: string; readonly at: number }>
}

const sharedInstructions = 30_000
// Parts of a launch that is just worth it: more of them help if one thread is late, fewer are less work.
const fewestParts = 4
// Parts for each thread, so that one that is late or slow takes less.
const partsPerThread = 4
// What parts compute again may be this much of them.
const repeated = 1 / 8

/** How a launch is divided among threads. */
const partSize = (
  iterations: number,
  { perIteration, perPart }: { readonly perPart: number; readonly perIteration: number },
  { count, worthwhile }: Sharing
): number => {
  const all = iterations * perIteration
  if (count === 1 || all < worthwhile) return iterations
  const least = Math.max(worthwhile / fewestParts, perPart / repeated)
  const parts = Math.floor(Math.min(iterations, count * partsPerThread, all / least))
  return parts < 2 ? iterations : Math.ceil(iterations / parts)
}

/** Among whom launches are divided, and from how many instructions. */
interface Sharing {
  readonly count: number
  readonly worthwhile: number
}

const workOf = ({ grid, instructions }: Program, vars: Readonly<Record<string, number>>, sharing: Sharing): Work => {
  const iterations = evaluateIndex(grid[0], vars)
  if (instructions === undefined || sharing.count === 1) return { iterations, size: iterations }
  const { perIteration, perPart } = instructions
  const cost = { perPart: evaluateIndex(perPart, vars), perIteration: evaluateIndex(perIteration, vars) }
  return { iterations, size: partSize(iterations, cost, sharing) }
}

/** Fixed launches in order, on one memory. */
export class LaunchList {
  private readonly launches: Array<Launch> = []
  private readonly planned = new Map<Program, Planned>()
  private readonly buffers = new Set<WasmBuffer>()
  private readonly memory: WasmMemory
  private readonly crew: Crew | undefined
  private readonly sharing: Sharing
  private checkedAt: number

  private constructor(memory: WasmMemory, crew: Crew | undefined) {
    this.memory = memory
    this.crew = crew
    this.sharing = { count: crew?.count ?? 1, worthwhile: crew?.sharedInstructions ?? sharedInstructions }
    this.checkedAt = memory.releases
  }

  /** The dispatches with everything that stays the same in place, or which of them is wrong. */
  static make(
    dispatches: ReadonlyArray<Dispatch>,
    memory: WasmMemory,
    crew: Crew | undefined
  ): LaunchList | DeviceError {
    const list = new LaunchList(memory, crew)
    for (const dispatch of dispatches) {
      const problem = list.add(dispatch)
      if (problem !== undefined) return problem
    }
    return list
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
    const vars = program.vars.map((name, i) => ({ name, at: pointers.length + i }))
    const planned = this.planned.get(program) ??
      { program, kernel: (executable as WasmExecutable).kernel, work: { iterations: 0, size: 0 } }
    this.planned.set(program, planned)
    this.launches.push({ planned, args: [...pointers, ...vars.map(() => 0)], vars })
    return undefined
  }

  /** Runs all launches, one after the other. */
  run(vars: Readonly<Record<string, number>>): DeviceError | undefined {
    const problem = this.check() ?? this.fill(vars)
    if (problem !== undefined) return problem
    for (const { program, work } of this.planned.values()) Object.assign(work, workOf(program, vars, this.sharing))
    for (const launch of this.launches) {
      const trap = this.launch(launch)
      if (trap !== undefined) {
        return bad(
          `${launch.planned.program.name} trapped: ${trap}; a buffer is smaller than the kernel expects or a variable ` +
            `out of its bounds`
        )
      }
    }
    return undefined
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
    for (const { args, vars } of this.launches) for (const { at, name } of vars) args[at] = values[name]!
    return undefined
  }

  private launch({ args, planned: { kernel, work: { iterations, size } } }: Launch): string | undefined {
    if (size < iterations) return this.crew!.run({ run: kernel.run, kernel: kernel.number, args, iterations, size })
    try {
      kernel.run(0, iterations, ...args)
      return undefined
    } catch (error) {
      return String(error)
    }
  }
}
