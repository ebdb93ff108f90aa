import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import type { Program } from "@tg/core-uop/Program"
import {
  Device,
  type DeviceBuffer,
  DeviceError,
  type DeviceShape,
  type Dispatch,
  type Executable
} from "@tg/runtime/Device"
import { Effect, Layer, type Scope } from "effect"
import { Heap } from "./internal/Heap.ts"

/** How much memory the device may use. */
export interface Options {
  /** The memory's largest size in bytes: at most 4 GiB, the default. */
  readonly maxBytes?: number
}

const pageBytes = 65536
const maxPages = 65536

class WasmBuffer implements DeviceBuffer {
  readonly label: string
  readonly bytes: number
  readonly offset: number
  readonly memory: WebAssembly.Memory
  live = true

  constructor(label: string, bytes: number, offset: number, memory: WebAssembly.Memory) {
    this.label = label
    this.bytes = bytes
    this.offset = offset
    this.memory = memory
  }
}

type Run = (...args: ReadonlyArray<number>) => void

interface WasmExecutable extends Executable {
  readonly memory: WebAssembly.Memory
  readonly run: Run
}

/** A dispatch with its pointers in place. Variables are filled in for each run. */
interface Launch {
  readonly name: string
  readonly run: Run
  readonly args: Array<number>
  readonly vars: ReadonlyArray<{ readonly name: string; readonly at: number }>
}

const bad = (message: string): DeviceError => new DeviceError({ reason: "BadArgument", message })

const hash = (bytes: Uint8Array): number => {
  let h = 0x811c9dc5
  for (const b of bytes) h = Math.imul(h ^ b, 0x01000193)
  return h
}

const equal = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && a.every((x, i) => x === b[i])

/** The state of one device: plain and synchronous. Methods return errors as values. */
class WasmMemory {
  readonly memory: WebAssembly.Memory
  readonly maxBytes: number
  allocated = 0
  /** Counts releases: a plan checks its buffers again only after one. */
  releases = 0
  private readonly heap = new Heap()
  /** Bytes from here on were never handed out, so they are still zero. */
  private untouched = 0
  private readonly instances = new Map<number, Array<{ readonly code: Uint8Array; readonly run: Run }>>()

  constructor(memory: WebAssembly.Memory, maxBytes: number) {
    this.memory = memory
    this.maxBytes = maxBytes
  }

  allocate(requested: number, label: string): WasmBuffer | DeviceError {
    if (!Number.isInteger(requested) || requested < 0) {
      return bad(`${label}: ${requested} is not a number of bytes`)
    }
    const bytes = Math.ceil(requested / 4) * 4
    const { maxBindingBytes } = DeviceProfile.wasm
    if (bytes > maxBindingBytes) {
      return new DeviceError({
        reason: "LimitExceeded",
        message: `${label}: ${bytes} bytes asked, one buffer holds at most ${maxBindingBytes}; split it by rows`
      })
    }
    const offset = this.heap.allocate(bytes, this.maxBytes)
    if (offset === undefined) return this.outOfMemory(label, bytes, `the device may use ${this.maxBytes}`)
    const missing = this.heap.end - this.memory.buffer.byteLength
    if (missing > 0) {
      const refusal = this.grow(missing)
      if (refusal !== undefined) {
        this.heap.release(offset, bytes)
        return this.outOfMemory(
          label,
          bytes,
          `the host refuses more than ${this.memory.buffer.byteLength} (${refusal})`
        )
      }
    }
    const dirty = Math.min(offset + bytes, this.untouched)
    if (dirty > offset) new Uint8Array(this.memory.buffer, offset, dirty - offset).fill(0)
    this.untouched = Math.max(this.untouched, this.heap.end)
    this.allocated += bytes
    return new WasmBuffer(label, bytes, offset, this.memory)
  }

  /** Grows by some more than asked, so that there are few growths, or by just that much if the host refuses. */
  private grow(missing: number): string | undefined {
    const size = this.memory.buffer.byteLength
    const generous = Math.min(Math.max(missing, Math.min(size, 2 ** 28)), this.maxBytes - size)
    let refusal = ""
    for (const bytes of [generous, missing]) {
      try {
        this.memory.grow(Math.ceil(bytes / pageBytes))
        return undefined
      } catch (error) {
        refusal = String(error)
      }
    }
    return refusal
  }

  private outOfMemory(label: string, bytes: number, limit: string): DeviceError {
    return new DeviceError({
      reason: "OutOfMemory",
      message: `${label}: ${bytes} bytes asked, ${this.allocated} are in use, the largest free piece is ` +
        `${this.heap.largestFree}, and ${limit}; free buffers, use a smaller context, or raise maxBytes (at most 4 GiB)`
    })
  }

  release(buffer: WasmBuffer): void {
    if (!buffer.live) return
    buffer.live = false
    this.releases++
    this.allocated -= buffer.bytes
    this.heap.release(buffer.offset, buffer.bytes)
  }

  /** The buffer as this device's own, or why it is not usable. */
  own(buffer: DeviceBuffer): WasmBuffer | DeviceError {
    if (!(buffer instanceof WasmBuffer) || buffer.memory !== this.memory) {
      return bad(`${buffer.label} belongs to another device`)
    }
    return buffer.live
      ? buffer
      : bad(`${buffer.label} is used after its Scope closed; keep the Scope open as long as its users`)
  }

  /** Part of a buffer. The view is for now only: growing the memory detaches it. */
  view(buffer: DeviceBuffer, offset: number, bytes: number): Uint8Array | DeviceError {
    const own = this.own(buffer)
    if (own instanceof DeviceError) return own
    if (!(offset >= 0 && bytes >= 0 && offset % 4 === 0 && bytes % 4 === 0)) {
      return bad(`${own.label}: offset ${offset} and length ${bytes} have to be multiples of 4`)
    }
    if (offset + bytes > own.bytes) {
      return bad(`${own.label}: bytes ${offset} to ${offset + bytes} asked, the buffer has ${own.bytes}`)
    }
    return new Uint8Array(this.memory.buffer, own.offset + offset, bytes)
  }

  /** The instance made from the same code before. Kernels have no state, so one instance serves all. */
  find(code: Uint8Array): Run | undefined {
    return this.instances.get(hash(code))?.find((i) => equal(i.code, code))?.run
  }

  keep(code: Uint8Array, run: Run): void {
    const key = hash(code)
    const list = this.instances.get(key) ?? []
    list.push({ code: code.slice(), run })
    this.instances.set(key, list)
  }

  launch(
    { buffers, executable }: Dispatch
  ): { readonly launch: Launch; readonly buffers: ReadonlyArray<WasmBuffer> } | DeviceError {
    const { program } = executable
    if (!("memory" in executable) || executable.memory !== this.memory) {
      return bad(`${program.name} was loaded on another device; load it here`)
    }
    if (buffers.length !== program.bindings.length) {
      return bad(`${program.name} has ${program.bindings.length} bindings and got ${buffers.length} buffers`)
    }
    const owned: Array<WasmBuffer> = []
    for (const buffer of buffers) {
      const own = this.own(buffer)
      if (own instanceof DeviceError) return own
      owned.push(own)
    }
    const vars = program.vars.map((name, i) => ({ name, at: owned.length + i }))
    const args = [...owned.map((b) => b.offset), ...vars.map(() => 0)]
    return { launch: { name: program.name, run: (executable as WasmExecutable).run, args, vars }, buffers: owned }
  }
}

const runAll = (launches: ReadonlyArray<Launch>, vars: Readonly<Record<string, number>>): DeviceError | undefined => {
  for (const launch of launches) {
    for (const { at, name } of launch.vars) {
      const value = vars[name]
      if (value === undefined) return bad(`${launch.name} needs a value of the variable ${name}`)
      if (value !== (value | 0)) return bad(`${launch.name}: ${name} = ${value} is not a 32-bit integer`)
      launch.args[at] = value
    }
  }
  for (const { args, name, run } of launches) {
    try {
      run(...args)
    } catch (error) {
      return bad(
        `${name} trapped: ${String(error)}; a buffer is smaller than the kernel expects or a variable out of its bounds`
      )
    }
  }
  return undefined
}

const asEffect = <A>(value: A | DeviceError): Effect.Effect<A, DeviceError> =>
  value instanceof DeviceError ? Effect.fail(value) : Effect.succeed(value)

const rejected = (program: Program, found: string): DeviceError =>
  new DeviceError({ reason: "ProgramRejected", message: `${program.name}: ${found}` })

const load = (state: WasmMemory, program: Program): Effect.Effect<Executable, DeviceError> => {
  const { code } = program
  if (program.target !== "wasm" || !(code instanceof Uint8Array)) {
    return Effect.fail(
      bad(`${program.name} is a program for ${program.target}, this device runs wasm; render it with @tg/codegen-wasm`)
    )
  }
  const { memory } = state
  const executable = (run: Run): WasmExecutable => ({ program, memory, run })
  const known = state.find(code)
  if (known !== undefined) return Effect.succeed(executable(known))
  return Effect.tryPromise({
    try: async () => {
      const { instance } = await WebAssembly.instantiate(code as Uint8Array<ArrayBuffer>, { env: { memory } })
      const { run } = instance.exports
      if (typeof run !== "function") throw new Error("the module exports no function named run")
      state.keep(code, run as Run)
      return executable(run as Run)
    },
    catch: (error) => rejected(program, String(error))
  })
}

const plan = (state: WasmMemory, dispatches: ReadonlyArray<Dispatch>) => {
  const launches: Array<Launch> = []
  const buffers = new Set<WasmBuffer>()
  for (const dispatch of dispatches) {
    const bound = state.launch(dispatch)
    if (bound instanceof DeviceError) return bound
    launches.push(bound.launch)
    for (const b of bound.buffers) buffers.add(b)
  }
  let checkedAt = state.releases
  return {
    run: (vars: Readonly<Record<string, number>>): DeviceError | undefined => {
      if (checkedAt !== state.releases) {
        for (const buffer of buffers) {
          const own = state.own(buffer)
          if (own instanceof DeviceError) return own
        }
        checkedAt = state.releases
      }
      return runAll(launches, vars)
    }
  }
}

/** A device over one WebAssembly memory of its own, run by the calling thread. */
export const make = (options: Options = {}): Effect.Effect<DeviceShape, DeviceError> =>
  Effect.gen(function*() {
    const maxBytes = options.maxBytes ?? maxPages * pageBytes
    const maximum = Math.floor(maxBytes / pageBytes)
    if (!(maximum >= 1 && maximum <= maxPages)) {
      return yield* bad(`maxBytes is ${maxBytes}; a WebAssembly memory has 65536 to 4294967296 bytes`)
    }
    const memory = yield* Effect.try({
      try: () => new WebAssembly.Memory({ initial: 1, maximum }),
      catch: (error) =>
        new DeviceError({ reason: "Unavailable", message: `no memory of up to ${maxBytes} bytes: ${String(error)}` })
    })
    const state = new WasmMemory(memory, maximum * pageBytes)
    return {
      profile: DeviceProfile.wasm,
      allocatedBytes: () => state.allocated,
      allocate: (bytes, label): Effect.Effect<DeviceBuffer, DeviceError, Scope.Scope> =>
        Effect.acquireRelease(
          Effect.suspend(() => asEffect(state.allocate(bytes, label))),
          (buffer) => Effect.sync(() => state.release(buffer))
        ),
      write: (buffer, data, offset = 0) =>
        Effect.suspend(() => {
          const target = state.view(buffer, offset, data.byteLength)
          if (target instanceof DeviceError) return Effect.fail(target)
          target.set(data)
          return Effect.void
        }),
      read: (buffer, offset = 0, bytes = buffer.bytes - offset) =>
        Effect.suspend(() => {
          const source = state.view(buffer, offset, bytes)
          return source instanceof DeviceError ? Effect.fail(source) : Effect.succeed(source.slice())
        }),
      load: (program) => load(state, program),
      plan: (dispatches) =>
        Effect.suspend(() => {
          const prepared = plan(state, dispatches)
          if (prepared instanceof DeviceError) return Effect.fail(prepared)
          return Effect.succeed({
            run: (vars: Readonly<Record<string, number>>) =>
              Effect.suspend(() => {
                const error = prepared.run(vars)
                return error === undefined ? Effect.void : Effect.fail(error)
              })
          })
        })
    }
  })

/** The device as a service. */
export const layer = (options: Options = {}): Layer.Layer<Device, DeviceError> => Layer.effect(Device, make(options))
