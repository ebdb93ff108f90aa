import { bindingAlignment } from "@tg/core-uop/DeviceLimits"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { Program } from "@tg/core-uop/Program"
import { Context, Effect, Schema, type Scope } from "effect"

/** Memory of a device. Made by `allocate`, returned when its Scope closes. */
export interface DeviceBuffer {
  readonly label: string
  /** A multiple of 4. */
  readonly bytes: number
}

/** A program that the device has accepted. */
export interface Executable {
  readonly program: Program
}

/** A part of a buffer as an argument of a kernel. The kernel sees its first byte as element 0. */
export interface Window {
  readonly buffer: DeviceBuffer
  /** In bytes: a multiple of 256. */
  readonly offset: number
  /** A multiple of 4. */
  readonly bytes: number
}

/** An argument of a kernel: a whole buffer, or a window of one. */
export type Binding = DeviceBuffer | Window

/** One kernel launch: `buffers` are in the order of `program.bindings`. */
export interface Dispatch {
  readonly executable: Executable
  readonly buffers: ReadonlyArray<Binding>
}

/** The buffer behind an argument. */
export const bufferOf = (binding: Binding): DeviceBuffer => "buffer" in binding ? binding.buffer : binding

/** The part of its buffer that an argument is; what is wrong with it is a message. */
export const windowOf = (binding: Binding): Window | string => {
  if (!("buffer" in binding)) return { buffer: binding, offset: 0, bytes: binding.bytes }
  const { buffer, bytes, offset } = binding
  const isWhole = Number.isInteger(offset) && offset >= 0 && offset % bindingAlignment === 0 &&
    Number.isInteger(bytes) && bytes >= 0 && bytes % 4 === 0
  return isWhole && offset + bytes <= buffer.bytes
    ? binding
    : `a window of ${bytes} bytes from ${offset} on, of ${buffer.label} with ${buffer.bytes} bytes; ` +
      `windows lie inside of the buffer and start at multiples of ${bindingAlignment}`
}

/** What is wrong with the size of an argument: the kernel reaches beyond its end. Binding `index` of the program. */
export const misfitOf = (program: Program, index: number, { buffer, bytes }: Window): string | undefined => {
  const { bytes: needed, slot } = program.bindings[index]!
  return needed === undefined || needed <= bytes
    ? undefined
    : `${program.name} needs ${needed} bytes in slot ${slot}, and ${buffer.label} has ${bytes}; bind a larger buffer`
}

/** The argument that keeps WebGPU from binding the one at `index`: the same buffer, and only one of both writes, or both write in windows that meet. -1 where there is none. */
export const twinOf = ({ bindings }: Program, given: ReadonlyArray<Window>, index: number): number => {
  const { buffer, bytes, offset } = given[index]!
  const { access } = bindings[index]!
  return given.findIndex((other, i) =>
    i !== index && other.buffer === buffer &&
    (access !== bindings[i]!.access ||
      access === "write" && offset < other.offset + other.bytes && other.offset < offset + bytes)
  )
}

/** What is wrong with the variables of a run: one that the program needs is missing, or outside of its bounds. */
export const misvaluedIn = (program: Program, vars: Readonly<Record<string, number>>): string | undefined => {
  for (let i = 0; i < program.vars.length; i++) {
    const name = program.vars[i]!
    const value = vars[name]
    if (value === undefined) return `${program.name} needs a value for the variable ${name}`
    const bounds = program.bounds?.[i] ?? int32
    if (!Number.isInteger(value) || value < bounds.min || value > bounds.max) {
      return `${program.name}: ${name} = ${value} is not an integer from ${bounds.min} to ${bounds.max}`
    }
  }
  return undefined
}

const int32 = { min: -(2 ** 31), max: 2 ** 31 - 1 }

/** Bytes to copy from one buffer to another; offsets and length are multiples of 4. */
export interface Copy {
  readonly from: DeviceBuffer
  readonly fromOffset: number
  readonly to: DeviceBuffer
  readonly toOffset: number
  readonly bytes: number
}

/** Bytes of a buffer to read; offset and length are multiples of 4. */
export interface Span {
  readonly buffer: DeviceBuffer
  readonly offset: number
  readonly bytes: number
}

/** Values of variables by their names. */
export type Vars = Readonly<Record<string, number>>

/** A run of a plan that is submitted with others. What is in it is the device's own. */
export interface Staged {
  readonly vars: Vars
}

/** A fixed sequence of launches, prepared once. Each run executes them in order with these values of the variables. */
export interface Replay {
  readonly run: (vars: Vars) => Effect.Effect<void, DeviceError>
  /** Runs it and waits: the microseconds that the device itself worked. Only where the device has a clock to read. */
  readonly timed?: ((vars: Vars) => Effect.Effect<number, DeviceError>) | undefined
  /** A run with these values, for `DeviceShape.submit`, or why there is none. It does nothing yet. */
  readonly stage?: ((vars: Vars) => Staged | DeviceError) | undefined
}

/** Why a device refused or failed. */
export const Reason = Schema.Literals([
  "OutOfMemory",
  "LimitExceeded",
  "ProgramRejected",
  "BadArgument",
  "DeviceLost",
  /** Workgroups that were to wait for each other did not run at once: what was computed is void. */
  "BarriersFailed",
  "Unavailable"
])

/** What was asked of the device, what it found, and what to do. */
export class DeviceError extends Schema.TaggedError<DeviceError>()("DeviceError", {
  reason: Reason,
  message: Schema.String
}) {}

/** A place where programs run. Every device passes `Conformance`. */
export interface DeviceShape {
  readonly profile: DeviceProfile
  /** Bytes now allocated, by `allocate` and for plans, and not yet returned. */
  readonly allocatedBytes: () => number
  /** Zero-filled memory of at least `bytes`, rounded up to a multiple of 4. */
  readonly allocate: (bytes: number, label: string) => Effect.Effect<DeviceBuffer, DeviceError, Scope.Scope>
  /** Copies bytes into the buffer; offset and length are multiples of 4. Ordered with `run` and `read`. */
  readonly write: (buffer: DeviceBuffer, data: Uint8Array, offset?: number) => Effect.Effect<void, DeviceError>
  /** Copies bytes out after everything submitted before has finished; offset and length are multiples of 4. */
  readonly read: (buffer: DeviceBuffer, offset?: number, bytes?: number) => Effect.Effect<Uint8Array, DeviceError>
  /** Copies between different buffers, one after the other. Ordered with `write`, `run` and `read`. */
  readonly copy: (copies: ReadonlyArray<Copy>) => Effect.Effect<void, DeviceError>
  readonly load: (program: Program) => Effect.Effect<Executable, DeviceError>
  /** Prepares launches. What the device keeps for them lives as long as the Scope, and so long the plan may be run. */
  readonly plan: (dispatches: ReadonlyArray<Dispatch>) => Effect.Effect<Replay, DeviceError, Scope.Scope>
  /**
   * Runs plans and reads buffers in this order, in one submission: answers with what was read, when all of it is there. What is wrong with
   * any of it is found before anything runs. Only where that takes the host less than one after the other.
   */
  readonly submit?:
    | ((work: ReadonlyArray<Staged | Span>) => Effect.Effect<ReadonlyArray<Uint8Array>, DeviceError>)
    | undefined
}

/** A plan to run, or bytes to read. */
export type Work = Span | { readonly replay: Replay; readonly vars: Vars }

/** Runs plans and reads buffers in this order, in one submission where the device can do that. */
export const together = Effect.fnUntraced(function*(
  device: Pick<DeviceShape, "read" | "submit">,
  work: ReadonlyArray<Work>
): Effect.fn.Return<ReadonlyArray<Uint8Array>, DeviceError> {
  const staged: Array<Staged | Span> = []
  for (const each of work) {
    const own = "buffer" in each ? each : each.replay.stage?.(each.vars)
    if (own instanceof DeviceError) return yield* own
    if (own !== undefined) staged.push(own)
  }
  // what is only read needs no submission of its own
  if (work.length > 1 && staged.length === work.length && device.submit !== undefined) {
    return yield* device.submit(staged)
  }
  const found: Array<Uint8Array> = []
  for (const each of work) {
    if ("buffer" in each) found.push(yield* device.read(each.buffer, each.offset, each.bytes))
    else yield* each.replay.run(each.vars)
  }
  return found
})

export class Device extends Context.Service<Device, DeviceShape>()("@tg/runtime/Device") {}
