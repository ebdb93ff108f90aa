import type { Executable } from "@tg/runtime/Device"
import type { Crew } from "./Crew.ts"
import { callerModule, type Driver } from "./driver.ts"

/** A compiled kernel: iterations from and to, then its arguments. */
export type Run = (...args: ReadonlyArray<number>) => void

/** A kernel by its place in the table of functions, and the function that calls it with arguments from the memory. */
export interface Kernel {
  readonly number: number
  readonly caller: number
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

/** What kernels of a device run with: each thread has a table of the same functions, and a driver that calls them. */
export interface Host {
  readonly memory: WebAssembly.Memory
  readonly kind: "shared" | "own"
  readonly table: WebAssembly.Table
  readonly driver: Driver
  readonly crew: Crew | undefined
}

/** Kernels by their code. They have no state, so one instance for each thread serves all programs with this code. */
export class Kernels {
  private readonly byHash = new Map<number, Array<{ readonly code: Uint8Array; readonly kernel: Kernel }>>()
  private readonly callers = new Map<number, number>()
  private readonly host: Host

  constructor(host: Host) {
    this.host = host
  }

  find(code: Uint8Array): Kernel | undefined {
    return this.byHash.get(hash(code))?.find((known) => equal(known.code, code))?.kernel
  }

  /** Keeps a kernel of so many arguments, besides the iterations. */
  keep(
    code: Uint8Array,
    { args, module, run }: { readonly module: WebAssembly.Module; readonly run: Run; readonly args: number }
  ): Kernel {
    const key = hash(code)
    const list = this.byHash.get(key) ?? []
    const kernel = { number: this.add(module, run), caller: this.callerOf(args) }
    list.push({ code: code.slice(), kernel })
    this.byHash.set(key, list)
    return kernel
  }

  private callerOf(args: number): number {
    const known = this.callers.get(args)
    if (known !== undefined) return known
    const { kind, memory, table } = this.host
    const module = callerModule(args, kind)
    const { run } = new WebAssembly.Instance(module, { env: { memory, kernels: table } }).exports
    const caller = this.add(module, run as Run)
    this.callers.set(args, caller)
    return caller
  }

  private add(module: WebAssembly.Module, run: Run): number {
    const { crew, table } = this.host
    const number = table.grow(1)
    table.set(number, run)
    crew?.add(module)
    return number
  }
}
