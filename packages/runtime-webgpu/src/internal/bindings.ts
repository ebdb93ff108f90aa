/** What a dispatch gives to its kernel: windows of buffers, as the GPU is told of them. */
import { type DeviceError, type Dispatch, misfitOf, twinOf, type Window, windowOf } from "@tg/runtime/Device"
import { Memory } from "./memory.ts"
import { Loaded } from "./programs.ts"
import { error, type Gpu } from "./queue.ts"
import type { Storage } from "./storage.ts"

/** A buffer, or a part of one, as the GPU is told of it. */
export interface Bound {
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

/** What a dispatch binds, or why it cannot be prepared: foreign objects, or buffers in roles that WebGPU keeps apart. */
export const boundOf = (
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
  const windows: Array<Window> = []
  for (const [i, binding] of buffers.entries()) {
    const window = windowOf(binding)
    if (typeof window === "string") return error("BadArgument", `${name} is given ${window}`)
    const memory = storage.own(window.buffer)
    if (!(memory instanceof Memory)) return error("BadArgument", `${name}: ${memory.message}`)
    const misfit = misfitOf(executable.program, i, window)
    if (misfit !== undefined) return error("BadArgument", misfit)
    windows.push(window)
    const twin = twinOf(executable.program, windows, i)
    if (twin >= 0) {
      return error(
        "BadArgument",
        `${name}: ${memory.label} is bound as ${twin} and as ${i}, and written; WebGPU allows that only as one binding, or as windows that do not meet`
      )
    }
    const made = bind(gpu, memory, window)
    if (typeof made === "string") return error("LimitExceeded", `${name} is given ${made}`)
    bound.push(made)
  }
  return bound
}
