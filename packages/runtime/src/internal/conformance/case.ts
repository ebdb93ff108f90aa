/** A case of the suite, and what cases are written with. */
import type { Program } from "@tg/core-uop/Program"
import type { Arena, UOp } from "@tg/core-uop/UOp"
import { Effect, Schema, type Scope } from "effect"
import type { DeviceBuffer, DeviceError, DeviceShape, Executable } from "../../Device.ts"

/** A device did something else than the contract says. */
export class ConformanceFailure extends Schema.TaggedError<ConformanceFailure>()("ConformanceFailure", {
  message: Schema.String
}) {}

/** Turns a kernel (spec `kernel`; its SINK is named, see `ConformanceKernels`) into a program of the device. */
export type Compile<E, R> = (kernel: UOp) => Effect.Effect<Program, E, R>

/** What a case is given. */
export interface Bench<E, R> {
  readonly device: DeviceShape
  readonly compile: Compile<E, R>
  /** Compiles a kernel and loads it on the device. */
  readonly load: (kernel: (arena: Arena) => UOp) => Effect.Effect<Executable, DeviceError | E, R>
}

/** Cases by what they show. */
export type Cases = Readonly<
  Record<
    string,
    <E, R>(bench: Bench<E, R>) => Effect.Effect<void, ConformanceFailure | DeviceError | E, Scope.Scope | R>
  >
>

const fail = (message: string) => Effect.fail(new ConformanceFailure({ message }))

/** Fails with the message unless that holds. */
export const check = (holds: boolean, message: () => string): Effect.Effect<void, ConformanceFailure> =>
  holds ? Effect.void : fail(message())

/** Words as bytes, and back. */
export const bytesOf = (words: ReadonlyArray<number>): Uint8Array => new Uint8Array(Uint32Array.from(words).buffer)
export const wordsOf = (bytes: Uint8Array): ReadonlyArray<number> => [...new Uint32Array(bytes.slice().buffer)]

/** Floats as bytes, and back. */
export const floatBytes = (values: ReadonlyArray<number>): Uint8Array =>
  new Uint8Array(Float32Array.from(values).buffer)
export const floatsOf = (bytes: Uint8Array): ReadonlyArray<number> => [...new Float32Array(bytes.slice().buffer)]

/** 0, 1, ... below n. */
export const upTo = (n: number): ReadonlyArray<number> => Array.from({ length: n }, (_, i) => i)

/** The numbers are those that are wanted, bit by bit. */
export const same = (what: string, got: ReadonlyArray<number>, wanted: ReadonlyArray<number>) => {
  const at = wanted.findIndex((w, i) => !Object.is(got[i], w))
  return check(
    got.length === wanted.length && at < 0,
    () =>
      got.length === wanted.length
        ? `${what}: element ${at} is ${got[at]}, not ${wanted[at]}`
        : `${what}: ${got.length} elements, not ${wanted.length}`
  )
}

/** The buffer begins with these words. */
export const expectWords = (device: DeviceShape, buffer: DeviceBuffer, wanted: ReadonlyArray<number>) =>
  Effect.flatMap(device.read(buffer, 0, wanted.length * 4), (bytes) => same(buffer.label, wordsOf(bytes), wanted))

/** The effect fails with `BadArgument`. */
export const refuses = <A, R>(what: string, effect: Effect.Effect<A, DeviceError, R>) =>
  Effect.matchEffect(effect, {
    onSuccess: () => fail(`${what}: accepted, where BadArgument is due`),
    onFailure: (error) =>
      check(error.reason === "BadArgument", () => `${what}: ${error.reason}, where BadArgument is due`)
  })

/** A buffer with these words. */
export const filled = (device: DeviceShape, label: string, words: ReadonlyArray<number>) =>
  Effect.tap(device.allocate(words.length * 4, label), (buffer) => device.write(buffer, bytesOf(words)))
