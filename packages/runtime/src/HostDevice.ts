/** A device that runs programs in this process, on memory of its own: all but the programs themselves. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { Program } from "@tg/core-uop/Program"
import { Effect } from "effect"
import {
  type Binding,
  bufferOf,
  type Copy,
  type DeviceBuffer,
  DeviceError,
  type DeviceShape,
  type Dispatch,
  type Executable,
  misfitOf,
  misvaluedIn,
  twinOf,
  type Window,
  windowOf
} from "./Device.ts"

/** Values of the variables. */
export type Vars = Readonly<Record<string, number>>

/** Runs a program once: on its arguments as 32-bit words, in the order of its `bindings`, each as long as what is bound. */
export type Run = (args: ReadonlyArray<Uint32Array>, vars: Vars) => void

/** What a device is made from. */
export interface Host {
  readonly profile: DeviceProfile
  /** Makes a program ready, or says why it is not one of this device's. */
  readonly load: (program: Program) => Run | DeviceError
  /** Bytes that all buffers together may take; more is `OutOfMemory`. */
  readonly limitBytes?: number | undefined
}

class Memory implements DeviceBuffer {
  readonly label: string
  readonly bytes: number
  readonly owner: Host
  words: Uint32Array | undefined

  constructor(label: string, bytes: number, owner: Host) {
    this.label = label
    this.bytes = bytes
    this.owner = owner
    this.words = new Uint32Array(bytes / 4)
  }
}

class Loaded implements Executable {
  readonly program: Program
  readonly run: Run
  readonly owner: Host

  constructor(program: Program, run: Run, owner: Host) {
    this.program = program
    this.run = run
    this.owner = owner
  }
}

/** A `BadArgument`. */
export const bad = (message: string): DeviceError => new DeviceError({ reason: "BadArgument", message })

const open = (host: Host, buffer: DeviceBuffer): Uint32Array | DeviceError => {
  if (!(buffer instanceof Memory) || buffer.owner !== host) {
    return bad(`the buffer ${buffer.label} belongs to another device`)
  }
  return buffer.words ?? bad(`the buffer ${buffer.label} is closed: its scope has ended`)
}

/** The bytes [offset, offset + length) of an open buffer. */
const slice = (host: Host, buffer: DeviceBuffer, offset: number, length: number): Uint8Array | DeviceError => {
  const words = open(host, buffer)
  if (words instanceof DeviceError) return words
  if (!Number.isInteger(offset) || offset % 4 !== 0 || length % 4 !== 0) {
    return bad(`${buffer.label}: offset ${offset} and length ${length} must be multiples of 4`)
  }
  if (offset < 0 || length < 0 || offset + length > words.byteLength) {
    return bad(`${buffer.label}: bytes ${offset} to ${offset + length} of ${words.byteLength}`)
  }
  return new Uint8Array(words.buffer, offset, length)
}

/** What is wrong with a launch, if anything: the buffers do not fit the program. */
const checkDispatch = (host: Host, { buffers, executable }: Dispatch): DeviceError | undefined => {
  const { bindings, name } = executable.program
  if (!(executable instanceof Loaded) || executable.owner !== host) return bad(`${name} was loaded by another device`)
  if (buffers.length !== bindings.length) return bad(`${name} binds ${bindings.length} buffers, not ${buffers.length}`)
  const windows: Array<Window> = []
  for (const [i, binding] of buffers.entries()) {
    const words = open(host, bufferOf(binding))
    if (words instanceof DeviceError) return words
    const window = windowOf(binding)
    if (typeof window === "string") return bad(`${name} is given ${window}`)
    const misfit = misfitOf(executable.program, i, window)
    if (misfit !== undefined) return bad(misfit)
    windows.push(window)
  }
  for (const [i, { buffer }] of windows.entries()) {
    const twin = twinOf(executable.program, windows, i)
    if (twin >= 0 && bindings[i]!.access === "write") {
      return bad(
        `${name} writes slot ${bindings[i]!.slot}, and ${buffer.label} is bound to slot ${bindings[twin]!.slot} too`
      )
    }
  }
  return undefined
}

const wordsOf = (binding: Binding): Uint32Array => {
  const { words } = bufferOf(binding) as Memory
  return "buffer" in binding ? words!.subarray(binding.offset / 4, (binding.offset + binding.bytes) / 4) : words!
}

const effect = <A>(f: () => A | DeviceError): Effect.Effect<A, DeviceError> =>
  Effect.suspend((): Effect.Effect<A, DeviceError> => {
    const result = f()
    return result instanceof DeviceError ? Effect.fail(result) : Effect.succeed(result)
  })

/** All launches are checked before the first one runs: a refused run changes nothing. */
const runAll = (host: Host, dispatches: ReadonlyArray<Dispatch>, vars: Vars): DeviceError | undefined => {
  for (const dispatch of dispatches) {
    const found = checkDispatch(host, dispatch)
    if (found !== undefined) return found
    const { program } = dispatch.executable
    const misvalued = misvaluedIn(program, { ...vars, ...program.given })
    if (misvalued !== undefined) return bad(misvalued)
  }
  for (const { buffers, executable } of dispatches) {
    ;(executable as Loaded).run(buffers.map(wordsOf), { ...vars, ...executable.program.given })
  }
  return undefined
}

/**
 * Copies between buffers of the host's memory, one after the other; nothing if one of them cannot be made. `view` is a part of a
 * buffer, or why there is none.
 */
export const copyAll = (
  copies: ReadonlyArray<Copy>,
  view: (buffer: DeviceBuffer, offset: number, bytes: number) => Uint8Array | DeviceError
): DeviceError | undefined => {
  const moves: Array<readonly [to: Uint8Array, from: Uint8Array]> = []
  for (const { bytes, from, fromOffset, to, toOffset } of copies) {
    const source = view(from, fromOffset, bytes)
    const target = view(to, toOffset, bytes)
    if (source instanceof DeviceError) return source
    if (target instanceof DeviceError) return target
    if (from === to) return bad(`${from.label} is copied to itself; copies are between different buffers`)
    moves.push([target, source])
  }
  for (const [to, from] of moves) to.set(from)
  return undefined
}

/** The device. What a program does wrong (an access outside a buffer, where it notices) is a defect of `run`. */
export const make = (host: Host): DeviceShape => {
  let allocated = 0
  const limit = host.limitBytes ?? Infinity

  const allocate = (asked: number, label: string): Memory | DeviceError => {
    if (!Number.isFinite(asked) || asked < 0) return bad(`${label}: cannot allocate ${asked} bytes`)
    const bytes = Math.ceil(asked / 4) * 4
    if (allocated + bytes > limit) {
      return new DeviceError({
        reason: "OutOfMemory",
        message:
          `${label} needs ${bytes} bytes; ${allocated} of ${limit} are taken; close other scopes or raise limitBytes`
      })
    }
    const memory = new Memory(label, bytes, host)
    allocated += bytes
    return memory
  }

  const free = (memory: Memory): void => {
    memory.words = undefined
    allocated -= memory.bytes
  }

  return {
    profile: host.profile,
    allocatedBytes: () => allocated,
    allocate: (bytes, label) =>
      Effect.acquireRelease(effect(() => allocate(bytes, label)), (memory) => Effect.sync(() => free(memory))),
    write: (buffer, data, offset = 0) =>
      effect(() => {
        const target = slice(host, buffer, offset, data.length)
        return target instanceof DeviceError ? target : target.set(data)
      }),
    read: (buffer, offset = 0, bytes) =>
      effect(() => {
        const source = slice(host, buffer, offset, bytes ?? buffer.bytes - offset)
        return source instanceof DeviceError ? source : source.slice()
      }),
    copy: (copies) => effect(() => copyAll(copies, (...part) => slice(host, ...part))),
    load: (program) =>
      effect(() => {
        const run = host.load(program)
        return run instanceof DeviceError ? run : new Loaded(program, run, host)
      }),
    plan: (dispatches) =>
      effect(() => {
        const fixed = [...dispatches]
        const problem = fixed.map((dispatch) => checkDispatch(host, dispatch)).find((p) => p !== undefined)
        return problem ?? { run: (vars: Vars) => effect(() => runAll(host, fixed, vars)) }
      })
  }
}
