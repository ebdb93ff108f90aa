import { evaluateIndex } from "@tg/core-uop/Program"
import { DeviceError, type Dispatch, misfitOf, misvaluedIn, type Replay, windowOf } from "@tg/runtime/Device"
import { Effect, type Scope } from "effect"
import { Memory, type Storage } from "./memory.ts"
import { Loaded } from "./programs.ts"
import { error, type Gpu, scoped, usage } from "./queue.ts"
import * as Timer from "./timer.ts"

/** One launch with everything the device needs prepared. */
interface Launch {
  readonly loaded: Loaded
  readonly group: GPUBindGroup
  /** The workgroup counts, where no variable takes part in them. */
  readonly fixed: readonly [number, number, number] | undefined
}

type Vars = Readonly<Record<string, number>>

/** A buffer, or a part of one, as the GPU is told of it. */
interface Bound {
  readonly memory: Memory
  readonly resource: GPUBufferBinding
  /** Equal for equal resources. */
  readonly key: string
}

/** What is bound for an argument of a kernel: it lies in one GPUBuffer, and is no larger than a binding may be. */
const bind = (
  gpu: Gpu,
  memory: Memory,
  window: { readonly offset: number; readonly bytes: number }
): Bound | string => {
  const { bytes, offset } = window
  const most = gpu.device.limits.maxStorageBufferBindingSize
  if (bytes > most) return `${bytes} bytes of ${memory.label}, the device binds ${most}; bind a window of it`
  const [piece, other] = memory.pieces(offset, Math.max(4, bytes))
  if (other !== undefined) {
    return `bytes ${offset} to ${
      offset + bytes
    } of ${memory.label}, which lie in two buffers of ${memory.segmentBytes}; ` +
      "bind a window for each"
  }
  if (piece!.offset === 0 && bytes === memory.bytes) {
    return { memory, resource: { buffer: piece!.gpu }, key: `${memory.id}` }
  }
  // whole vectors of four, which the buffer has room for
  const size = Math.min(Math.ceil(bytes / 16) * 16, piece!.gpu.size - piece!.offset)
  return {
    memory,
    resource: { buffer: piece!.gpu, offset: piece!.offset, size },
    key: `${memory.id}+${offset}:${bytes}`
  }
}

/** Why a dispatch cannot be prepared: foreign objects, or buffers in roles that WebGPU keeps apart. */
const checkDispatch = (
  gpu: Gpu,
  storage: Storage,
  { buffers, executable }: Dispatch
): DeviceError | ReadonlyArray<Bound> => {
  if (!(executable instanceof Loaded) || executable.gpu !== gpu) {
    return error("BadArgument", `the program ${executable.program.name} was loaded on another device`)
  }
  const { bindings, name } = executable.program
  if (buffers.length !== bindings.length) {
    return error("BadArgument", `${name}: ${buffers.length} buffers for ${bindings.length} bindings`)
  }
  const bound: Array<Bound> = []
  for (const [i, binding] of buffers.entries()) {
    const window = windowOf(binding)
    if (typeof window === "string") return error("BadArgument", `${name} is given ${window}`)
    const memory = storage.own(window.buffer)
    if (!(memory instanceof Memory)) return error("BadArgument", `${name}: ${memory.message}`)
    const misfit = misfitOf(executable.program, i, window)
    if (misfit !== undefined) return error("BadArgument", misfit)
    const twin = bound.findIndex((b, j) =>
      b.memory === memory && (bindings[i]!.access === "write" || bindings[j]!.access === "write")
    )
    if (twin >= 0) {
      return error(
        "BadArgument",
        `${name}: ${memory.label} is bound as ${twin} and as ${i}, and written; WebGPU allows that only as one binding`
      )
    }
    const made = bind(gpu, memory, window)
    if (typeof made === "string") return error("LimitExceeded", `${name} is given ${made}`)
    bound.push(made)
  }
  return bound
}

/** Where each distinct list of variables lies in the uniform buffer. Programs with equal lists share a place. */
const placeVars = (dispatches: ReadonlyArray<Dispatch>, alignment: number) => {
  const places = new Map<
    string,
    { readonly offset: number; readonly size: number; readonly vars: ReadonlyArray<string> }
  >()
  let end = 0
  for (const { executable: { program: { vars } } } of dispatches) {
    const key = vars.join()
    if (vars.length === 0 || places.has(key)) continue
    const offset = Math.ceil(end / alignment) * alignment
    const size = Math.ceil(vars.length / 4) * 16
    places.set(key, { offset, size, vars })
    end = offset + size
  }
  return { places, bytes: end }
}

const gridOf = ({ program }: Loaded, vars: Vars): readonly [number, number, number] => [
  evaluateIndex(program.grid[0], vars),
  evaluateIndex(program.grid[1], vars),
  evaluateIndex(program.grid[2], vars)
]

const checkGrid = (name: string, grid: ReadonlyArray<number>, most: number): DeviceError | undefined => {
  const axis = grid.findIndex((size) => !(size >= 0 && size <= most))
  if (axis < 0) return undefined
  return grid[axis]! > most
    ? error(
      "LimitExceeded",
      `${name}: ${grid[axis]} workgroups along ${"xyz"[axis]}, the device runs ${most}; split the axis`
    )
    : error("BadArgument", `${name}: ${grid[axis]} workgroups along ${"xyz"[axis]}`)
}

/** Prepares launches once; a run writes the variables and submits one command buffer. */
export const make =
  (gpu: Gpu, storage: Storage) =>
  (dispatches: ReadonlyArray<Dispatch>): Effect.Effect<Replay, DeviceError, Scope.Scope> =>
    Effect.gen(function*() {
      const { device } = gpu
      const most = device.limits.maxComputeWorkgroupsPerDimension
      const used = new Set<Memory>()
      const bound: Array<ReadonlyArray<Bound>> = []
      for (const dispatch of dispatches) {
        const found = checkDispatch(gpu, storage, dispatch)
        if (found instanceof DeviceError) return yield* found
        bound.push(found)
        for (const { memory } of found) used.add(memory)
      }
      const { bytes, places } = placeVars(dispatches, device.limits.minUniformBufferOffsetAlignment)

      const prepare = (): { readonly uniforms: GPUBuffer | undefined; readonly launches: ReadonlyArray<Launch> } => {
        const uniforms = bytes === 0
          ? undefined
          : device.createBuffer({ label: "variables", size: bytes, usage: usage.uniform | usage.copyDst })
        const groups = new Map<string, GPUBindGroup>()
        const launches = dispatches.map(({ executable }, i): Launch => {
          const loaded = executable as Loaded
          const { grid, vars } = loaded.program
          const place = places.get(vars.join())
          const key = `${layoutNumber(loaded.layout)};${bound[i]!.map((b) => b.key).join()};${place?.offset ?? ""}`
          let group = groups.get(key)
          if (group === undefined) {
            const entries: Array<GPUBindGroupEntry> = bound[i]!.map(({ resource }, binding) => ({ binding, resource }))
            if (place !== undefined) {
              const resource = { buffer: uniforms!, offset: place.offset, size: place.size }
              entries.push({ binding: entries.length, resource })
            }
            group = device.createBindGroup({ label: loaded.program.name, layout: loaded.layout, entries })
            groups.set(key, group)
          }
          const isFixed = grid.every((size) => typeof size === "number")
          return { loaded, group, fixed: isFixed ? gridOf(loaded, {}) : undefined }
        })
        return { uniforms, launches }
      }
      const layoutNumbers = new Map<GPUBindGroupLayout, number>()
      const layoutNumber = (layout: GPUBindGroupLayout): number => {
        const number = layoutNumbers.get(layout) ?? layoutNumbers.size
        layoutNumbers.set(layout, number)
        return number
      }

      let closed = false
      const made = yield* Effect.acquireRelease(
        Effect.tap(scoped(gpu, prepare), () => Effect.sync(() => storage.count(bytes))),
        ({ value: { uniforms } }) =>
          Effect.sync(() => {
            closed = true
            uniforms?.destroy()
            storage.count(-bytes)
          })
      )
      if (made.memory !== undefined) return yield* error("OutOfMemory", `preparing a plan: ${made.memory}`)
      if (made.validation !== undefined) return yield* error("BadArgument", `preparing a plan: ${made.validation}`)
      const { launches, uniforms } = made.value
      for (const { fixed, loaded } of launches) {
        const refused = fixed === undefined ? undefined : checkGrid(loaded.program.name, fixed, most)
        if (refused !== undefined) return yield* refused
      }
      const words = new Int32Array(bytes / 4)
      const programs = new Set(dispatches.map(({ executable }) => executable.program))

      const writeVars = (vars: Vars): DeviceError | undefined => {
        for (const program of programs) {
          const misvalued = misvaluedIn(program, vars)
          if (misvalued !== undefined) return error("BadArgument", misvalued)
        }
        for (const { offset, vars: names } of places.values()) {
          for (const [i, name] of names.entries()) words[offset / 4 + i] = vars[name]!
        }
        if (uniforms !== undefined) device.queue.writeBuffer(uniforms, 0, words)
        return undefined
      }

      const submit = (vars: Vars, timer?: Timer.Timer): DeviceError | undefined => {
        const grids: Array<readonly [number, number, number]> = []
        for (const { fixed, loaded } of launches) {
          const grid = fixed ?? gridOf(loaded, vars)
          const refused = fixed === undefined ? checkGrid(loaded.program.name, grid, most) : undefined
          if (refused !== undefined) return refused
          grids.push(grid)
        }
        const encoder = device.createCommandEncoder()
        const pass = encoder.beginComputePass(timer?.descriptor)
        let pipeline: GPUComputePipeline | undefined
        for (const [i, { group, loaded }] of launches.entries()) {
          const [x, y, z] = grids[i]!
          if (x === 0 || y === 0 || z === 0) continue
          if (pipeline !== loaded.pipeline) pass.setPipeline(loaded.pipeline)
          pipeline = loaded.pipeline
          pass.setBindGroup(0, group)
          // an argument takes a tenth of a microsecond to pass
          if (y === 1 && z === 1) pass.dispatchWorkgroups(x)
          else pass.dispatchWorkgroups(x, y, z)
        }
        pass.end()
        timer?.resolve(encoder)
        device.queue.submit([encoder.finish()])
        return undefined
      }

      const check = (vars: Vars): DeviceError | undefined => {
        const trouble = gpu.trouble()
        if (trouble !== undefined) return trouble
        if (closed) return error("BadArgument", "a plan was run after its scope closed")
        for (const memory of used) {
          const found = storage.own(memory)
          if (found instanceof DeviceError) return found
        }
        return writeVars(vars)
      }
      const run = (vars: Vars): Effect.Effect<void, DeviceError> =>
        Effect.suspend(() => {
          const refused = check(vars) ?? submit(vars)
          return refused === undefined ? Effect.void : Effect.fail(refused)
        })
      const timed = (vars: Vars): Effect.Effect<number, DeviceError> =>
        Timer.time(gpu, (timer) => check(vars) ?? submit(vars, timer))

      return device.features.has("timestamp-query") ? { run, timed } : { run }
    })
