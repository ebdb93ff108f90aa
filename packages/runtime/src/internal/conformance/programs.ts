/** What devices promise of programs and plans: order, variables, results. */
import { Effect } from "effect"
import { bytesOf, type Cases, expectWords, filled, floatBytes, floatsOf, refuses, same, upTo } from "./case.ts"
import * as Kernels from "../../ConformanceKernels.ts"

/** The cases of programs and plans. */
export const programs: Cases = {
  "a program sees what was written before, and a read sees what it did": ({ device, load }) =>
    Effect.gen(function*() {
      const n = Kernels.count
      const input = yield* filled(device, "input", upTo(n))
      const output = yield* device.allocate(n * 4, "output")
      const plan = yield* device.plan([{ executable: yield* load(Kernels.addOne), buffers: [output, input] }])
      yield* plan.run({})
      yield* expectWords(device, output, upTo(n).map((i) => i + 1))
    }),

  "a program sees a window of a buffer as all there is": ({ device, load }) =>
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
    }),

  "copies happen in order, between writes and runs": ({ device, load }) =>
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
    }),

  "a write after a run does not reach into it": ({ device, load }) =>
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
    }),

  "a large launch reaches every element": ({ device, load }) =>
    Effect.gen(function*() {
      const n = Kernels.largeCount
      const output = yield* device.allocate(n * 4, "large")
      const plan = yield* device.plan([{ executable: yield* load(Kernels.large), buffers: [output] }])
      yield* plan.run({})
      yield* expectWords(device, output, upTo(n).map((i) => i * 3))
    }),

  "floats are summed": ({ device, load }) =>
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
    }),

  "a gate that is false reads zero": ({ device, load }) =>
    Effect.gen(function*() {
      const n = Kernels.shiftCount
      const input = yield* filled(device, "input", upTo(n).map((i) => i + 5))
      const output = yield* filled(device, "output", upTo(n + 2).map(() => 9))
      const plan = yield* device.plan([{ executable: yield* load(Kernels.shift), buffers: [output, input] }])
      yield* plan.run({})
      yield* expectWords(device, output, [0, ...upTo(n).map((i) => i + 5), 0])
    }),

  "a plan runs again with other values of its variables": ({ device, load }) =>
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
    }),

  "runs with different variables that nobody waits for keep their own": ({ device, load }) =>
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
    }),

  "dispatches of a plan happen in order": ({ device, load }) =>
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
    }),

  "a plan may do nothing": ({ device }) => Effect.flatMap(device.plan([]), (plan) => plan.run({}))
}
