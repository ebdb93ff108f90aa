import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import type { Program } from "@tg/core-uop/Program"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { Effect, Exit, Schema, Scope } from "effect"
import * as Operations from "./ConformanceOperations.ts"
import * as Kernels from "./ConformanceKernels.ts"
import { Device, type DeviceBuffer, type DeviceError, type DeviceShape } from "./Device.ts"

/** A device did something else than the contract says. */
export class ConformanceFailure extends Schema.TaggedError<ConformanceFailure>()("ConformanceFailure", {
  message: Schema.String
}) {}

/** Turns a kernel (spec `kernel`; its SINK is named, see `ConformanceKernels`) into a program of the device. */
export type Compile<E, R> = (kernel: UOp) => Effect.Effect<Program, E, R>

/** One thing every device does. */
export interface Case<E, R> {
  readonly name: string
  readonly effect: Effect.Effect<void, ConformanceFailure | DeviceError | E, Device | R>
}

const fail = (message: string) => Effect.fail(new ConformanceFailure({ message }))
const check = (holds: boolean, message: () => string): Effect.Effect<void, ConformanceFailure> =>
  holds ? Effect.void : fail(message())

const bytesOf = (words: ReadonlyArray<number>): Uint8Array => new Uint8Array(Uint32Array.from(words).buffer)
const wordsOf = (bytes: Uint8Array): ReadonlyArray<number> => [...new Uint32Array(bytes.slice().buffer)]
const floatBytes = (values: ReadonlyArray<number>): Uint8Array => new Uint8Array(Float32Array.from(values).buffer)
const floatsOf = (bytes: Uint8Array): ReadonlyArray<number> => [...new Float32Array(bytes.slice().buffer)]
const upTo = (n: number): ReadonlyArray<number> => Array.from({ length: n }, (_, i) => i)

const same = (what: string, got: ReadonlyArray<number>, wanted: ReadonlyArray<number>) => {
  const at = wanted.findIndex((w, i) => !Object.is(got[i], w))
  return check(
    got.length === wanted.length && at < 0,
    () =>
      got.length === wanted.length
        ? `${what}: element ${at} is ${got[at]}, not ${wanted[at]}`
        : `${what}: ${got.length} elements, not ${wanted.length}`
  )
}

const expectWords = (device: DeviceShape, buffer: DeviceBuffer, wanted: ReadonlyArray<number>) =>
  Effect.flatMap(device.read(buffer, 0, wanted.length * 4), (bytes) => same(buffer.label, wordsOf(bytes), wanted))

/** The effect fails with `BadArgument`. */
const refuses = <A, R>(what: string, effect: Effect.Effect<A, DeviceError, R>) =>
  Effect.matchEffect(effect, {
    onSuccess: () => fail(`${what}: accepted, where BadArgument is due`),
    onFailure: (error) =>
      check(error.reason === "BadArgument", () => `${what}: ${error.reason}, where BadArgument is due`)
  })

/** A buffer with these words. */
const filled = (device: DeviceShape, label: string, words: ReadonlyArray<number>) =>
  Effect.tap(device.allocate(words.length * 4, label), (buffer) => device.write(buffer, bytesOf(words)))

const wordsFrom = (scalar: Operations.Scalar, values: ReadonlyArray<number>): ReadonlyArray<number> =>
  scalar === "f32" ? wordsOf(floatBytes(values)) : values.map((x) => x >>> 0)

/** What the evaluator gives. */
const resultsOf = (scalar: Operations.Scalar): Uint32Array => {
  const out = new Uint32Array(Operations.count(scalar))
  const inputs = Operations.inputs[scalar].map((values) => Uint32Array.from(wordsFrom(scalar, values)))
  evaluateKernel(Operations.operations(scalar)(new Arena()), new Map([[0, out], [1, inputs[0]!], [2, inputs[1]!]]))
  return out
}

/** Everything the `Device` contract promises, as cases to run with any test framework. */
export const cases = <E, R>(compile: Compile<E, R>): ReadonlyArray<Case<E, R>> => {
  const load = (kernel: (arena: Arena) => UOp) =>
    Effect.gen(function*() {
      const device = yield* Device
      return yield* device.load(yield* compile(kernel(new Arena())))
    })

  const make = (
    name: string,
    body: (device: DeviceShape) => Effect.Effect<void, ConformanceFailure | DeviceError | E, Device | Scope.Scope | R>
  ): Case<E, R> => ({ name, effect: Effect.scoped(Effect.flatMap(Device, body)) as Case<E, R>["effect"] })

  return [
    make("memory starts as zeros and has at least the size asked for", (device) =>
      Effect.gen(function*() {
        const buffer = yield* device.allocate(4099, "odd")
        yield* check(buffer.bytes >= 4100 && buffer.bytes % 4 === 0, () => `4099 bytes became ${buffer.bytes}`)
        yield* expectWords(device, buffer, upTo(1025).map(() => 0))
      })),

    make("memory that is given back and taken again is zero again", (device) =>
      Effect.gen(function*() {
        const size = 1 << 16
        const ones = upTo(size / 4).map(() => 0xffffffff)
        yield* Effect.scoped(filled(device, "first", ones))
        yield* expectWords(device, yield* device.allocate(size, "second"), ones.map(() => 0))
      })),

    make("an empty buffer can be made, written and read", (device) =>
      Effect.gen(function*() {
        const buffer = yield* device.allocate(0, "empty")
        yield* device.write(buffer, new Uint8Array(0))
        yield* same("empty", [...yield* device.read(buffer, 0, 0)], [])
      })),

    make("bytes come back as they were written, at their offsets", (device) =>
      Effect.gen(function*() {
        const buffer = yield* filled(device, "words", [1, 2, 3, 4, 5, 6])
        yield* device.write(buffer, bytesOf([0xdeadbeef, 0x7fc00001]), 8)
        yield* expectWords(device, buffer, [1, 2, 0xdeadbeef, 0x7fc00001, 5, 6])
        yield* same("middle", wordsOf(yield* device.read(buffer, 12, 8)), [0x7fc00001, 5])
        yield* same("rest", wordsOf(yield* device.read(buffer, 16)).slice(0, 2), [5, 6])
      })),

    make(
      "a write takes the bytes of a part of an array, and as they are at the call",
      (device) =>
        Effect.gen(function*() {
          const buffer = yield* device.allocate(8, "copied")
          const data = bytesOf([1, 2, 3, 4])
          yield* device.write(buffer, data.subarray(4, 12))
          data.fill(255)
          yield* expectWords(device, buffer, [2, 3])
        })
    ),

    make("a read gives bytes of its own", (device) =>
      Effect.gen(function*() {
        const buffer = yield* filled(device, "own", [7])
        const bytes = yield* device.read(buffer)
        bytes.fill(0)
        yield* device.write(buffer, bytesOf([8]))
        yield* same("first read", [...bytes], [0, 0, 0, 0].concat(upTo(bytes.length - 4).map(() => 0)))
        yield* expectWords(device, buffer, [8])
      })),

    make("many reads at once each get their part", (device) =>
      Effect.gen(function*() {
        const buffer = yield* filled(device, "shared", upTo(64))
        const parts = yield* Effect.all(upTo(16).map((i) => device.read(buffer, i * 16, 16)), {
          concurrency: "unbounded"
        })
        yield* same("parts", parts.flatMap(wordsOf), upTo(64))
      })),

    make("a program sees what was written before, and a read sees what it did", (device) =>
      Effect.gen(function*() {
        const n = Kernels.count
        const input = yield* filled(device, "input", upTo(n))
        const output = yield* device.allocate(n * 4, "output")
        const plan = yield* device.plan([{ executable: yield* load(Kernels.addOne), buffers: [output, input] }])
        yield* plan.run({})
        yield* expectWords(device, output, upTo(n).map((i) => i + 1))
      })),

    make("a program sees a window of a buffer as all there is", (device) =>
      Effect.gen(function*() {
        const n = Kernels.count
        const input = yield* filled(device, "input", upTo(n + 64))
        const output = yield* device.allocate(n * 4 + 512, "output")
        const window = { buffer: input, offset: 256, bytes: n * 4 }
        const buffers = [{ buffer: output, offset: 512, bytes: n * 4 }, window]
        const executable = yield* load(Kernels.addOne)
        yield* (yield* device.plan([{ executable, buffers }])).run({})
        yield* expectWords(device, output, [...upTo(128).map(() => 0), ...upTo(n).map((i) => i + 65)])
        const wrong = (part: { readonly offset: number; readonly bytes: number }) =>
          device.plan([{ executable, buffers: [output, { buffer: input, ...part }] }])
        yield* refuses("a window that starts anywhere", wrong({ offset: 64, bytes: n * 4 }))
        yield* refuses("a window beyond the end", wrong({ offset: 512, bytes: n * 4 + 256 }))
      })),

    make("copies happen in order, between writes and runs", (device) =>
      Effect.gen(function*() {
        const n = Kernels.count
        const input = yield* filled(device, "input", upTo(n))
        const output = yield* device.allocate(n * 4, "output")
        const copy = yield* device.allocate(16, "copy")
        yield* (yield* device.plan([{ executable: yield* load(Kernels.addOne), buffers: [output, input] }])).run({})
        yield* device.copy([
          { from: output, fromOffset: 20, to: copy, toOffset: 0, bytes: 12 },
          { from: input, fromOffset: 4, to: copy, toOffset: 8, bytes: 8 }
        ])
        yield* device.write(output, bytesOf([9, 9, 9, 9, 9, 9, 9]))
        yield* expectWords(device, copy, [6, 7, 1, 2])
      })),

    make("a copy that does not fit is a bad argument, and copies nothing", (device) =>
      Effect.gen(function*() {
        const from = yield* filled(device, "from", [1, 2, 3, 4])
        const to = yield* filled(device, "to", [5, 6, 7, 8])
        const whole = { from, fromOffset: 0, to, toOffset: 0, bytes: 16 }
        yield* refuses("a copy behind the end", device.copy([whole, { ...whole, toOffset: to.bytes - 8 }]))
        yield* refuses("a copy of 3 bytes", device.copy([whole, { ...whole, bytes: 3 }]))
        yield* refuses("a copy to itself", device.copy([whole, { ...whole, to: from }]))
        yield* expectWords(device, to, [5, 6, 7, 8])
      })),

    make("a write after a run does not reach into it", (device) =>
      Effect.gen(function*() {
        const n = Kernels.count
        const input = yield* filled(device, "input", upTo(n))
        const output = yield* device.allocate(n * 4, "output")
        const plan = yield* device.plan([{ executable: yield* load(Kernels.addOne), buffers: [output, input] }])
        yield* plan.run({})
        yield* device.write(input, bytesOf(upTo(n).map(() => 1000)))
        yield* expectWords(device, output, upTo(n).map((i) => i + 1))
        yield* plan.run({})
        yield* expectWords(device, output, upTo(n).map(() => 1001))
      })),

    make("a large launch reaches every element", (device) =>
      Effect.gen(function*() {
        const n = Kernels.largeCount
        const output = yield* device.allocate(n * 4, "large")
        const plan = yield* device.plan([{ executable: yield* load(Kernels.large), buffers: [output] }])
        yield* plan.run({})
        yield* expectWords(device, output, upTo(n).map((i) => i * 3))
      })),

    make("floats are summed", (device) =>
      Effect.gen(function*() {
        const { columns, rows } = Kernels.sumShape
        const values = upTo(rows * columns).map((i) => (i * 7) % 11 - 5) // integers: exact in every order
        const input = yield* device.allocate(values.length * 4, "matrix")
        yield* device.write(input, floatBytes(values))
        const output = yield* device.allocate(rows * 4, "sums")
        const plan = yield* device.plan([{ executable: yield* load(Kernels.rowSums), buffers: [output, input] }])
        yield* plan.run({})
        const wanted = upTo(rows).map((r) => values.slice(r * columns, (r + 1) * columns).reduce((a, b) => a + b, 0))
        yield* same("sums", floatsOf(yield* device.read(output, 0, rows * 4)), wanted)
      })),

    ...Operations.dtypes.map((scalar) =>
      make(`the operations that every renderer renders, on ${scalar}`, (device) =>
        Effect.gen(function*() {
          const wanted = resultsOf(scalar)
          const [a, b] = yield* Effect.forEach(
            Operations.inputs[scalar],
            (values, i) => filled(device, `input ${i}`, wordsFrom(scalar, values))
          )
          const output = yield* device.allocate(wanted.byteLength, "results")
          const executable = yield* load(Operations.operations(scalar))
          yield* (yield* device.plan([{ executable, buffers: [output, a!, b!] }])).run({})
          const bytes = yield* device.read(output, 0, wanted.byteLength)
          if (scalar !== "f32") return yield* same(output.label, wordsOf(bytes), [...wanted])
          const floats = new Float32Array(wanted.buffer)
          // a division and a root may be off by some units in the last place
          const got = floatsOf(bytes).map((x, i) =>
            Math.abs(x - floats[i]!) <= 2 ** -20 * Math.abs(floats[i]!) ? floats[i]! : x
          )
          yield* same(output.label, got, [...floats])
        }))
    ),

    make("a gate that is false reads zero", (device) =>
      Effect.gen(function*() {
        const n = Kernels.shiftCount
        const input = yield* filled(device, "input", upTo(n).map((i) => i + 5))
        const output = yield* filled(device, "output", upTo(n + 2).map(() => 9))
        const plan = yield* device.plan([{ executable: yield* load(Kernels.shift), buffers: [output, input] }])
        yield* plan.run({})
        yield* expectWords(device, output, [0, ...upTo(n).map((i) => i + 5), 0])
      })),

    make("a plan runs again with other values of its variables", (device) =>
      Effect.gen(function*() {
        const n = Kernels.count
        const output = yield* device.allocate(n * 4, "output")
        const plan = yield* device.plan([{ executable: yield* load(Kernels.symbolic), buffers: [output] }])
        const wanted = upTo(n).map(() => 0)
        for (const [length, value] of [[5, 7], [n, 1], [0, 9], [1, 3], [333, 2 ** 20]] as const) {
          yield* plan.run({ n: length, v: value })
          for (let i = 0; i < length; i++) wanted[i] = value + i
          yield* expectWords(device, output, wanted)
        }
      })),

    make("runs with different variables that nobody waits for keep their own", (device) =>
      Effect.gen(function*() {
        const n = Kernels.count
        const outputs = [yield* device.allocate(n * 4, "a"), yield* device.allocate(n * 4, "b")]
        const executable = yield* load(Kernels.symbolic)
        const plans = yield* Effect.all(outputs.map((output) => device.plan([{ executable, buffers: [output] }])))
        for (let i = 0; i < 20; i++) {
          yield* plans[0]!.run({ n: i + 1, v: 100 * i })
          yield* plans[1]!.run({ n: 20 - i, v: i })
        }
        // Element i of the first keeps the last run that reaches it: that with n = 20.
        yield* expectWords(device, outputs[0]!, upTo(20).map((i) => 1900 + i))
        yield* expectWords(device, outputs[1]!, upTo(20).map((i) => 19 - i + i))
      })),

    make("dispatches of a plan happen in order", (device) =>
      Effect.gen(function*() {
        const n = Kernels.count
        const a = yield* filled(device, "a", upTo(n))
        const b = yield* filled(device, "b", upTo(n).map((i) => i * 5 + 1))
        const mix = yield* load(Kernels.mix)
        // Each dispatch reads what the one before wrote, and overwrites what the one before read.
        const steps = upTo(100).map((i) => ({ executable: mix, buffers: i % 2 === 0 ? [a, b] : [b, a] }))
        const plan = yield* device.plan(steps)
        const wanted = { a: upTo(n), b: upTo(n).map((i) => i * 5 + 1) }
        for (let run = 0; run < 3; run++) {
          yield* plan.run({})
          for (let i = 0; i < 100; i++) {
            if (i % 2 === 0) wanted.a = wanted.a.map((x, j) => (Math.imul(x, 3) + wanted.b[j]!) >>> 0)
            else wanted.b = wanted.b.map((x, j) => (Math.imul(x, 3) + wanted.a[j]!) >>> 0)
          }
        }
        yield* expectWords(device, a, wanted.a)
        yield* expectWords(device, b, wanted.b)
      })),

    make("a plan may do nothing", (device) => Effect.flatMap(device.plan([]), (plan) => plan.run({}))),

    make("a closed scope returns its bytes, also after a failure", (device) =>
      Effect.gen(function*() {
        const before = device.allocatedBytes()
        yield* Effect.scoped(Effect.gen(function*() {
          yield* device.allocate(1000, "one")
          yield* device.allocate(3001, "two")
          yield* check(device.allocatedBytes() - before >= 4004, () =>
            `${device.allocatedBytes() - before} of 4004 bytes`)
        }))
        yield* check(device.allocatedBytes() === before, () =>
          `${device.allocatedBytes() - before} bytes are still there`)
        yield* Effect.exit(Effect.scoped(Effect.andThen(device.allocate(64, "lost"), Effect.fail("on purpose"))))
        yield* check(device.allocatedBytes() === before, () =>
          `${device.allocatedBytes() - before} bytes are still there`)
      })),

    make("misaligned and outside ranges are bad arguments, and change nothing", (device) =>
      Effect.gen(function*() {
        const buffer = yield* filled(device, "words", [1, 2, 3, 4])
        yield* refuses("write at offset 2", device.write(buffer, bytesOf([9]), 2))
        yield* refuses("write of 3 bytes", device.write(buffer, new Uint8Array(3)))
        yield* refuses("write at -4", device.write(buffer, bytesOf([9]), -4))
        yield* refuses("write beyond the end", device.write(buffer, bytesOf([9, 9]), buffer.bytes - 4))
        yield* refuses("read at offset 1", device.read(buffer, 1, 4))
        yield* refuses("read of 5 bytes", device.read(buffer, 0, 5))
        yield* refuses("read beyond the end", device.read(buffer, 4, buffer.bytes))
        yield* refuses("read from beyond the end", device.read(buffer, buffer.bytes + 4))
        yield* expectWords(device, buffer, [1, 2, 3, 4])
      })),

    make("a negative size is a bad argument", (device) =>
      Effect.gen(function*() {
        const before = device.allocatedBytes()
        yield* refuses("allocate -4", device.allocate(-4, "negative"))
        yield* refuses("allocate NaN", device.allocate(NaN, "not a number"))
        yield* check(device.allocatedBytes() === before, () => "a refused buffer is counted")
      })),

    make("a program of another target is a bad argument", (device) =>
      Effect.gen(function*() {
        const program = yield* compile(Kernels.addOne(new Arena()))
        const target = program.target === "wasm" ? "wgsl" : "wasm"
        yield* refuses(`a program for ${target}`, device.load({ ...program, target }))
      })),

    make("the wrong number of buffers is a bad argument", (device) =>
      Effect.gen(function*() {
        const executable = yield* load(Kernels.addOne)
        const buffer = yield* device.allocate(Kernels.count * 4, "one")
        yield* refuses("one buffer for two bindings", device.plan([{ executable, buffers: [buffer] }]))
        yield* refuses("no buffer for two bindings", device.plan([{ executable, buffers: [] }]))
      })),

    make("a missing variable is a bad argument", (device) =>
      Effect.gen(function*() {
        const output = yield* device.allocate(Kernels.count * 4, "output")
        const plan = yield* device.plan([{ executable: yield* load(Kernels.symbolic), buffers: [output] }])
        yield* refuses("run without v", plan.run({ n: 3 }))
        yield* plan.run({ n: 1, v: 4 })
        yield* expectWords(device, output, [4, 0])
      })),

    make("a variable outside of its bounds is a bad argument, and nothing runs", (device) =>
      Effect.gen(function*() {
        const n = Kernels.count
        const output = yield* filled(device, "output", upTo(n).map(() => 9))
        const behind = yield* filled(device, "behind", upTo(64).map(() => 7))
        const other = yield* filled(device, "other", [8])
        const executable = yield* load(Kernels.symbolic)
        const plan = yield* device.plan([
          { executable: yield* load(Kernels.constant), buffers: [other] },
          { executable, buffers: [output] }
        ])
        for (
          const [what, vars] of [
            ["n above its bound", { n: n + 1, v: 0 }],
            ["n far above its bound", { n: n + 64, v: 0 }],
            ["n below its bound", { n: -1, v: 0 }],
            ["a fraction", { n: 1.5, v: 0 }],
            ["no number", { n: NaN, v: 0 }],
            ["infinity", { n: 1, v: Infinity }],
            ["v above its bound", { n: 1, v: 2 ** 30 + 1 }],
            ["v as an integer of 33 bits", { n: 1, v: 2 ** 32 }]
          ] as const
        ) {
          yield* refuses(what, plan.run(vars))
        }
        yield* expectWords(device, output, upTo(n).map(() => 9))
        yield* expectWords(device, behind, upTo(64).map(() => 7))
        yield* expectWords(device, other, [8])
        yield* plan.run({ n, v: 2 ** 30 })
        yield* expectWords(device, output, upTo(n).map((i) => 2 ** 30 + i))
        yield* expectWords(device, behind, upTo(64).map(() => 7))
      })),

    make(
      "a buffer smaller than the program says is a bad argument, and nothing beside it is written",
      (device) =>
        Effect.gen(function*() {
          const n = Kernels.count
          const executable = yield* load(Kernels.addOne)
          const input = yield* filled(device, "input", upTo(n))
          const small = yield* filled(device, "small", [1, 2, 3, 4])
          const behind = yield* filled(device, "behind", upTo(n).map(() => 7))
          const wide = yield* device.allocate(n * 4 + 256, "wide")
          yield* refuses("a small output", device.plan([{ executable, buffers: [small, input] }]))
          yield* refuses("a small input", device.plan([{ executable, buffers: [wide, small] }]))
          const window = { buffer: wide, offset: 256, bytes: n * 4 - 4 }
          yield* refuses("a small window", device.plan([{ executable, buffers: [window, input] }]))
          const right = { executable, buffers: [wide, input] }
          yield* refuses("one of several", device.plan([right, { executable, buffers: [small, input] }, right]))
          yield* expectWords(device, small, [1, 2, 3, 4])
          yield* expectWords(device, behind, upTo(n).map(() => 7))
          yield* expectWords(device, wide, upTo(n).map(() => 0))
        })
    ),

    make("a buffer whose scope has ended is a bad argument", (device) =>
      Effect.gen(function*() {
        const executable = yield* load(Kernels.addOne)
        const output = yield* device.allocate(Kernels.count * 4, "output")
        const scope = yield* Scope.make()
        const gone = yield* Scope.provide(device.allocate(Kernels.count * 4, "gone"), scope)
        const plan = yield* device.plan([{ executable, buffers: [output, gone] }])
        yield* Scope.close(scope, Exit.void)
        yield* refuses("write", device.write(gone, bytesOf([1])))
        yield* refuses("read", device.read(gone, 0, 4))
        yield* refuses("plan", device.plan([{ executable, buffers: [output, gone] }]))
        yield* refuses("run of a plan made before", plan.run({}))
      }))
  ]
}
