/** What devices refuse, without doing anything. */
import { Arena } from "@tg/core-uop/UOp"
import { Effect, Exit, Scope } from "effect"
import { bytesOf, type Cases, check, expectWords, filled, refuses, upTo } from "./case.ts"
import * as Kernels from "../../ConformanceKernels.ts"

/** The cases of what is refused. */
export const refusals: Cases = {
  "a copy that does not fit is a bad argument, and copies nothing": ({ device }) =>
    Effect.gen(function*() {
      const from = yield* filled(device, "from", [1, 2, 3, 4])
      const to = yield* filled(device, "to", [5, 6, 7, 8])
      const whole = { from, fromOffset: 0, to, toOffset: 0, bytes: 16 }
      yield* refuses("a copy behind the end", device.copy([whole, { ...whole, toOffset: to.bytes - 8 }]))
      yield* refuses("a copy of 3 bytes", device.copy([whole, { ...whole, bytes: 3 }]))
      yield* refuses("a copy to itself", device.copy([whole, { ...whole, to: from }]))
      yield* expectWords(device, to, [5, 6, 7, 8])
    }),

  "misaligned and outside ranges are bad arguments, and change nothing": ({ device }) =>
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
    }),

  "a negative size is a bad argument": ({ device }) =>
    Effect.gen(function*() {
      const before = device.allocatedBytes()
      yield* refuses("allocate -4", device.allocate(-4, "negative"))
      yield* refuses("allocate NaN", device.allocate(NaN, "not a number"))
      yield* check(device.allocatedBytes() === before, () => "a refused buffer is counted")
    }),

  "a program of another target is a bad argument": ({ compile, device }) =>
    Effect.gen(function*() {
      const program = yield* compile(Kernels.addOne(new Arena()))
      const target = program.target === "wasm" ? "wgsl" : "wasm"
      yield* refuses(`a program for ${target}`, device.load({ ...program, target }))
    }),

  "the wrong number of buffers is a bad argument": ({ device, load }) =>
    Effect.gen(function*() {
      const executable = yield* load(Kernels.addOne)
      const buffer = yield* device.allocate(Kernels.count * 4, "one")
      yield* refuses("one buffer for two bindings", device.plan([{ executable, buffers: [buffer] }]))
      yield* refuses("no buffer for two bindings", device.plan([{ executable, buffers: [] }]))
    }),

  "a missing variable is a bad argument": ({ device, load }) =>
    Effect.gen(function*() {
      const output = yield* device.allocate(Kernels.count * 4, "output")
      const plan = yield* device.plan([{ executable: yield* load(Kernels.symbolic), buffers: [output] }])
      yield* refuses("run without v", plan.run({ n: 3 }))
      yield* plan.run({ n: 1, v: 4 })
      yield* expectWords(device, output, [4, 0])
    }),

  "a variable outside of its bounds is a bad argument, and nothing runs": ({ device, load }) =>
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
    }),

  "a buffer smaller than the program says is a bad argument, and nothing beside it is written": ({ device, load }) =>
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
    }),

  "a buffer whose scope has ended is a bad argument": ({ device, load }) =>
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
    })
}
