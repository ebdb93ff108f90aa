/** The random data of a kernel on a device. Inputs have copies, which launches rotate over, against warm caches. */
import type { UOp } from "@tg/core-uop/UOp"
import { Device, type DeviceBuffer, type DeviceError, type Executable } from "@tg/runtime/Device"
import { Effect, type Scope } from "effect"
import * as Inputs from "./Inputs.ts"

/** The amount of data. */
export interface Setup {
  /** Bytes that one launch moves. */
  readonly bytes: number
  /** Bytes that launches read before a copy is read again. */
  readonly rotateBytes: number
  readonly seed: number
}

/** The buffers of a kernel. */
export interface Data {
  /** The arguments that the kernel writes. */
  readonly outputs: ReadonlyArray<Inputs.Argument>
  /** The arguments of a launch of a program, by the launch's number. */
  readonly bind: (executable: Executable, launch: number) => ReadonlyArray<DeviceBuffer>
  /** The first copy of an argument. */
  readonly first: (argument: Inputs.Argument) => DeviceBuffer
  /** Restores the first copy. */
  readonly refill: (argument: Inputs.Argument) => Effect.Effect<void, DeviceError>
  /** The data of the first copies, by slot, as a launch finds it. */
  readonly values: () => ReadonlyArray<Float32Array | Int32Array | Uint32Array>
}

/** Smaller buffers are activations: in a model they are in the caches, where the launch before left them. */
const sharedBytes = 65536
/** The length of the random pattern, which is repeated. */
const patternWords = 2 ** 20
const mostCopies = 64

const bytesOf = (words: Uint32Array): Uint8Array => new Uint8Array(words.buffer, words.byteOffset, words.byteLength)

const isRotated = ({ role, words }: Inputs.Argument): boolean => role.kind !== "output" && 4 * words >= sharedBytes

/** The number of copies of each argument, so that each launch reads other data: other copies, or other places in them. */
const copiesOf = (kernel: UOp, all: ReadonlyArray<Inputs.Argument>, { bytes, rotateBytes }: Setup) => {
  const readBytes = all.filter(isRotated).reduce((n, { words }) => n + 4 * words, 0)
  const most = (bytes: number): number =>
    bytes === 0 ? 1 : Math.max(1, Math.min(mostCopies, Math.ceil(rotateBytes / bytes)))
  const picks = Inputs.picks(kernel)
  return (argument: Inputs.Argument): number => {
    if (argument.role.kind === "output") return 1
    if (isRotated(argument)) return most(readBytes)
    return picks || argument.role.kind === "places" ? most(bytes) : 1
  }
}

/** Allocates and fills the buffers of a kernel in the Scope. */
export const make: (name: string, kernel: UOp, setup: Setup) => Effect.Effect<Data, DeviceError, Device | Scope.Scope> =
  Effect.fn("Data.make")(function*(name, kernel, setup) {
    const device = yield* Device
    const all = Inputs.argumentsOf(kernel)
    const patternOf = (argument: Inputs.Argument, copy = 0): Uint32Array =>
      Inputs.words(argument, setup.seed + argument.slot + all.length * copy, Math.min(argument.words, patternWords))
    const fill = Effect.fnUntraced(function*(buffer: DeviceBuffer, pattern: Uint32Array, words: number) {
      for (let at = 0; at < words; at += pattern.length) {
        const part = pattern.subarray(0, Math.min(pattern.length, words - at))
        yield* device.write(buffer, bytesOf(part), 4 * at)
      }
    })
    const allocate = Effect.fnUntraced(function*(argument: Inputs.Argument, copy: number) {
      const buffer = yield* device.allocate(4 * argument.words, `${name} ${argument.slot}`)
      if (argument.role.kind !== "output") yield* fill(buffer, patternOf(argument, copy), argument.words)
      return buffer
    })
    const countOf = copiesOf(kernel, all, setup)
    const buffers = yield* Effect.forEach(
      all,
      (argument) => Effect.forEach(Array.from({ length: countOf(argument) }).keys(), (copy) => allocate(argument, copy))
    )
    const bufferOf = new Map(all.map(({ slot }, i) => [slot, buffers[i]!]))
    const first = ({ slot }: Inputs.Argument): DeviceBuffer => bufferOf.get(slot)![0]!
    return {
      outputs: all.filter(({ role }) => role.kind === "output"),
      bind: ({ program }, launch) =>
        program.bindings.map(({ slot }) => {
          const some = bufferOf.get(slot)!
          return some[launch % some.length]!
        }),
      first,
      refill: (argument) => fill(first(argument), patternOf(argument), argument.words),
      values: () =>
        all.map((argument) => {
          const pattern = patternOf(argument)
          const words = Uint32Array.from({ length: argument.words }, (_, i) => pattern[i % pattern.length]!)
          return argument.scalar === "f32"
            ? new Float32Array(words.buffer)
            : argument.scalar === "i32"
            ? new Int32Array(words.buffer)
            : words
        })
    }
  })
