import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import { elementwise } from "@tg/core-uop/Op"
import { type Program, Renderer, type RendererCaps, RenderError, signature } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import { toposort, UOp, varArg } from "@tg/core-uop/UOp"
import { Effect, Layer } from "effect"
import {
  type Binding,
  bufferOf,
  Device,
  type DeviceBuffer,
  DeviceError,
  type DeviceShape,
  type Dispatch,
  type Executable,
  misfitOf,
  windowOf
} from "./Device.ts"

/** What the reference device may be asked to watch. */
export interface Options {
  /** Bytes that all buffers together may take; more is `OutOfMemory`. */
  readonly limitBytes?: number
  /** Fail when two iterations of a kernel write different values to one element. */
  readonly checkWrites?: boolean
  /** Float arithmetic between load and store is not rounded to 32 bits. */
  readonly float64?: boolean
}

/** No limits of its own, and no speed worth tuning for. */
export const profile: DeviceProfile = {
  name: "reference",
  kind: "cpu",
  maxWorkgroupThreads: 1024,
  maxWorkgroupBytes: 2 ** 20,
  maxGrid: 2 ** 31 - 1,
  maxStorageBuffers: 1024,
  maxBindingBytes: 2 ** 32,
  maxBufferBytes: 2 ** 32,
  subgroupSize: undefined,
  packedDot: false,
  saturatingThreads: 1,
  dispatchMicros: 10,
  bytesPerMicro: 100
}

/** Every operation, every lane count, a grid. */
export const caps: RendererCaps = {
  target: "reference",
  hasGrid: true,
  lanes: [1, 2, 4],
  ops: elementwise,
  subgroupSize: undefined
}

/** A program of the reference device: the kernel itself, as a SINK (stages kernel to expanded) or a LINEAR. */
export const program = (name: string, kernel: UOp): Program => ({
  name,
  target: "reference",
  code: kernel,
  ...signature(kernel)
})

/** "Renders" a linear kernel for the reference device, with these capabilities: how a compiler is tested end to end. */
export const renderer = (withCaps: Partial<RendererCaps> = {}): Layer.Layer<Renderer> =>
  Layer.succeed(Renderer, {
    caps: { ...caps, ...withCaps, target: "reference" },
    render: (name, linear) => {
      const [problem] = Spec.check("linear", linear)
      return problem === undefined
        ? Effect.succeed(program(name, linear))
        : Effect.fail(new RenderError({ kernel: name, message: `${problem.node}: ${problem.reason}` }))
    }
  })

class Memory implements DeviceBuffer {
  readonly label: string
  readonly bytes: number
  words: Uint32Array | undefined

  constructor(label: string, bytes: number) {
    this.label = label
    this.bytes = bytes
    this.words = new Uint32Array(bytes / 4)
  }
}

class Loaded implements Executable {
  readonly program: Program
  readonly kernel: UOp

  constructor(accepted: Program, kernel: UOp) {
    this.program = accepted
    this.kernel = kernel
  }
}

const bad = (message: string): DeviceError => new DeviceError({ reason: "BadArgument", message })

const open = (buffer: DeviceBuffer): Uint32Array | DeviceError => {
  if (!(buffer instanceof Memory)) return bad(`the buffer ${buffer.label} belongs to another device`)
  return buffer.words ?? bad(`the buffer ${buffer.label} is closed: its scope has ended`)
}

/** The bytes [offset, offset + length) of an open buffer. */
const slice = (buffer: DeviceBuffer, offset: number, length: number): Uint8Array | DeviceError => {
  const words = open(buffer)
  if (words instanceof DeviceError) return words
  if (!Number.isInteger(offset) || offset % 4 !== 0 || length % 4 !== 0) {
    return bad(`${buffer.label}: offset ${offset} and length ${length} must be multiples of 4`)
  }
  if (offset < 0 || length < 0 || offset + length > words.byteLength) {
    return bad(`${buffer.label}: bytes ${offset} to ${offset + length} of ${words.byteLength}`)
  }
  return new Uint8Array(words.buffer, offset, length)
}

const accept = (asked: Program): Loaded | DeviceError => {
  const { code, name, target } = asked
  if (target !== "reference") return bad(`${name} is a program for ${target}; this is the reference device`)
  if (!(code instanceof UOp)) {
    return new DeviceError({ reason: "ProgramRejected", message: `${name}: the code is not a kernel` })
  }
  const stages: ReadonlyArray<Spec.Stage> = code.op === "LINEAR" ? ["linear"] : ["opted", "expanded"]
  const [first] = stages.map((stage) => Spec.check(stage, code)).toSorted((a, b) => a.length - b.length)
  if (first !== undefined && first.length > 0) {
    const { node, reason } = first[0]!
    return new DeviceError({ reason: "ProgramRejected", message: `${name}: ${node}: ${reason}` })
  }
  return new Loaded(asked, code)
}

/** What is wrong with a launch, if anything: the buffers do not fit the program. */
const checkDispatch = ({ buffers, executable }: Dispatch): DeviceError | undefined => {
  if (!(executable instanceof Loaded)) return bad(`${executable.program.name} was loaded by another device`)
  const { bindings, name } = executable.program
  if (buffers.length !== bindings.length) return bad(`${name} binds ${bindings.length} buffers, not ${buffers.length}`)
  for (const [i, binding] of buffers.entries()) {
    const buffer = bufferOf(binding)
    const words = open(buffer)
    if (words instanceof DeviceError) return words
    const window = windowOf(binding)
    if (typeof window === "string") return bad(`${name} is given ${window}`)
    const misfit = misfitOf(executable.program, i, window)
    if (misfit !== undefined) return bad(misfit)
    const twin = buffers.findIndex((other, j) => j !== i && bufferOf(other) === buffer)
    if (twin >= 0 && bindings[i]!.access === "write") {
      return bad(
        `${name} writes slot ${bindings[i]!.slot}, and ${buffer.label} is bound to slot ${bindings[twin]!.slot} too`
      )
    }
  }
  return undefined
}

/** What is wrong with the variables of a launch, if anything. */
const checkVars = (
  { kernel, program: { name } }: Loaded,
  vars: Readonly<Record<string, number>>
): DeviceError | undefined => {
  for (const node of toposort(kernel)) {
    if (node.op !== "VAR") continue
    const { max, min, name: variable } = varArg(node)
    const value = vars[variable]
    if (value === undefined) return bad(`${name} needs a value for the variable ${variable}`)
    if (!Number.isInteger(value) || value < min || value > max) {
      return bad(`${name}: ${variable} = ${value} is not an integer from ${min} to ${max}`)
    }
  }
  return undefined
}

const wordsOf = (binding: Binding): Uint32Array => {
  const { words } = bufferOf(binding) as Memory
  return "buffer" in binding ? words!.subarray(binding.offset / 4, (binding.offset + binding.bytes) / 4) : words!
}

const execute = ({ buffers, executable }: Dispatch, vars: Readonly<Record<string, number>>, options: Options): void => {
  const { kernel, program: { bindings } } = executable as Loaded
  const args = new Map(bindings.map(({ slot }, i) => [slot, wordsOf(buffers[i]!)]))
  if (kernel.op === "LINEAR") evaluateLinear(kernel, args, vars, options)
  else evaluateKernel(kernel, args, vars, options)
}

const effect = <A>(f: () => A | DeviceError): Effect.Effect<A, DeviceError> =>
  Effect.suspend((): Effect.Effect<A, DeviceError> => {
    const result = f()
    return result instanceof DeviceError ? Effect.fail(result) : Effect.succeed(result)
  })

/** A device that evaluates kernels directly. A compiler's mistake (an access outside a buffer) is a defect of `run`. */
export const make = (options: Options = {}): DeviceShape => {
  let allocated = 0
  const limit = options.limitBytes ?? Infinity

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
    const memory = new Memory(label, bytes)
    allocated += bytes
    return memory
  }

  const free = (memory: Memory): void => {
    memory.words = undefined
    allocated -= memory.bytes
  }

  return {
    profile,
    allocatedBytes: () => allocated,
    allocate: (bytes, label) =>
      Effect.acquireRelease(effect(() => allocate(bytes, label)), (memory) => Effect.sync(() => free(memory))),
    write: (buffer, data, offset = 0) =>
      effect(() => {
        const target = slice(buffer, offset, data.length)
        return target instanceof DeviceError ? target : target.set(data)
      }),
    read: (buffer, offset = 0, bytes) =>
      effect(() => {
        const source = slice(buffer, offset, bytes ?? buffer.bytes - offset)
        return source instanceof DeviceError ? source : source.slice()
      }),
    copy: (copies) =>
      effect(() => {
        const moves: Array<readonly [to: Uint8Array, from: Uint8Array]> = []
        for (const { bytes, from, fromOffset, to, toOffset } of copies) {
          const source = slice(from, fromOffset, bytes)
          const target = slice(to, toOffset, bytes)
          if (source instanceof DeviceError) return source
          if (target instanceof DeviceError) return target
          if (from === to) return bad(`${from.label} is copied to itself; copies are between different buffers`)
          moves.push([target, source])
        }
        for (const [to, from] of moves) to.set(from)
        return undefined
      }),
    load: (asked) => effect(() => accept(asked)),
    plan: (dispatches) =>
      effect(() => {
        const fixed = [...dispatches]
        const problem = fixed.map(checkDispatch).find((p) => p !== undefined)
        if (problem !== undefined) return problem
        return {
          run: (vars) =>
            effect(() => {
              // All launches are checked before the first one runs: a refused run changes nothing.
              for (const dispatch of fixed) {
                const found = checkDispatch(dispatch) ?? checkVars(dispatch.executable as Loaded, vars)
                if (found !== undefined) return found
              }
              for (const dispatch of fixed) execute(dispatch, vars, options)
              return undefined
            })
        }
      })
  }
}

/** The reference device. */
export const layer: Layer.Layer<Device> = Layer.sync(Device, () => make())

/** The reference device with options. Bind the layer to a constant before using it twice. */
export const layerWith = (options: Options): Layer.Layer<Device> => Layer.sync(Device, () => make(options))
