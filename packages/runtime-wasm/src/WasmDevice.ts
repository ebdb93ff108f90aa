import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import type { Program } from "@tg/core-uop/Program"
import { Device, type DeviceBuffer, DeviceError, type DeviceShape, type Executable } from "@tg/runtime/Device"
import { bad } from "@tg/runtime/HostDevice"
import { Effect, Layer, type Scope } from "effect"
import { Crew } from "./internal/Crew.ts"
import { type Driver, driverModule } from "./internal/driver.ts"
import { type Host, type Kernel, Kernels, type Run, type WasmExecutable } from "./internal/Kernels.ts"
import { LaunchList } from "./internal/LaunchList.ts"
import { maxPages, pageBytes, WasmMemory } from "./internal/WasmMemory.ts"
import { Threads } from "./Threads.ts"

/** How much memory the device may use, and who else. */
export interface Options {
  /** The memory's largest size in bytes: at most 4 GiB, the default. */
  readonly maxBytes?: number | undefined
  /**
   * Whether the memory can be shared with other threads. Default: `shared` where the host has shared memory. Programs
   * have to be rendered for the same; an `own` memory has one thread.
   */
  readonly memory?: "shared" | "own" | undefined
}

/** What a device is made of. */
interface State {
  readonly memory: WasmMemory
  readonly kernels: Kernels
}

const asEffect = <A>(value: A | DeviceError): Effect.Effect<A, DeviceError> =>
  value instanceof DeviceError ? Effect.fail(value) : Effect.succeed(value)

const load = (
  { kernels, memory: { memory } }: State,
  program: Program
): Effect.Effect<Executable, DeviceError> => {
  const { code } = program
  if (program.target !== "wasm" || !(code instanceof Uint8Array)) {
    return Effect.fail(
      bad(`${program.name} is a program for ${program.target}, this device runs wasm; render it with @tg/codegen-wasm`)
    )
  }
  const executable = (kernel: Kernel): WasmExecutable => ({ program, memory, kernel })
  const known = kernels.find(code)
  if (known !== undefined) return Effect.succeed(executable(known))
  return Effect.tryPromise({
    try: async () => {
      const { instance, module } = await WebAssembly.instantiate(code as Uint8Array<ArrayBuffer>, { env: { memory } })
      const { run } = instance.exports
      if (typeof run !== "function") throw new Error("the module exports no function named run")
      const { bindings, vars } = program
      const wanted = 2 + bindings.length + vars.length
      if (run.length !== wanted) {
        throw new Error(
          `run has ${run.length} parameters, and should have ${wanted}: from, to, ${bindings.length} addresses and ` +
            `${vars.length} variables`
        )
      }
      return executable(kernels.keep(code, { module, run: run as Run, args: wanted - 2 }))
    },
    catch: (error) => new DeviceError({ reason: "ProgramRejected", message: `${program.name}: ${String(error)}` })
  })
}

/** A device over one WebAssembly memory of its own, run by the calling thread and those of `Threads`. */
export const make = (options: Options = {}): Effect.Effect<DeviceShape, DeviceError, Scope.Scope> =>
  Effect.gen(function*() {
    const maxBytes = options.maxBytes ?? maxPages * pageBytes
    const maximum = Math.floor(maxBytes / pageBytes)
    if (!(maximum >= 1 && maximum <= maxPages)) {
      return yield* bad(`maxBytes is ${maxBytes}; a WebAssembly memory has 65536 to 4294967296 bytes`)
    }
    const shared = (options.memory ?? (typeof SharedArrayBuffer === "function" ? "shared" : "own")) === "shared"
    const own = yield* Effect.try({
      try: () => new WebAssembly.Memory({ initial: 1, maximum, shared }),
      catch: (error) =>
        new DeviceError({ reason: "Unavailable", message: `no memory of up to ${maxBytes} bytes: ${String(error)}` })
    })
    const threads = yield* Threads
    const memory = new WasmMemory(own, maximum * pageBytes)
    const kind = shared ? "shared" : "own"
    const table = new WebAssembly.Table({ element: "anyfunc", initial: 0 })
    const module = driverModule(kind)
    const { exports } = new WebAssembly.Instance(module, { env: { memory: own, kernels: table } })
    const driver: Driver = {
      launches: exports["launches"] as Driver["launches"],
      drive: exports["drive"] as Driver["drive"],
      at: exports["at"] as Driver["at"]
    }
    const crew = shared && threads.count > 1
      ? yield* Effect.acquireRelease(
        Effect.sync(() => new Crew(threads, { memory: own, module, driver })),
        (crew) => Effect.promise(() => crew.end())
      )
      : undefined
    const host: Host = { memory: own, kind, table, driver, crew }
    const state: State = { memory, kernels: new Kernels(host) }
    return {
      profile: { ...DeviceProfile.wasm, memoryBytes: maximum * pageBytes },
      allocatedBytes: () => memory.allocated,
      allocate: (bytes, label): Effect.Effect<DeviceBuffer, DeviceError, Scope.Scope> =>
        Effect.acquireRelease(
          Effect.suspend(() => asEffect(memory.allocate(bytes, label))),
          (buffer) => Effect.sync(() => memory.release(buffer))
        ),
      write: (buffer, data, offset = 0) =>
        Effect.suspend(() => {
          const target = memory.view(buffer, offset, data.byteLength)
          if (target instanceof DeviceError) return Effect.fail(target)
          target.set(data)
          return Effect.void
        }),
      read: (buffer, offset = 0, bytes = buffer.bytes - offset) =>
        Effect.suspend(() => {
          const source = memory.view(buffer, offset, bytes)
          return source instanceof DeviceError ? Effect.fail(source) : Effect.succeed(new Uint8Array(source))
        }),
      copy: (copies) =>
        Effect.suspend(() => {
          const error = memory.copy(copies)
          return error === undefined ? Effect.void : Effect.fail(error)
        }),
      load: (program) => load(state, program),
      plan: (dispatches) =>
        Effect.map(
          Effect.suspend(() => asEffect(LaunchList.make(dispatches, memory, host))),
          (list) => ({
            run: (vars: Readonly<Record<string, number>>) =>
              Effect.suspend(() => {
                const error = list.run(vars)
                return error === undefined ? Effect.void : Effect.fail(error)
              })
          })
        )
    }
  })

/** The device as a service. */
export const layer = (options: Options = {}): Layer.Layer<Device, DeviceError> => Layer.effect(Device, make(options))
