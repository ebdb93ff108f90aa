/** What devices promise of stores that add to memory. */
import * as DType from "@tg/core-uop/DType"
import { Effect } from "effect"
import { type Cases, expectWords, filled, floatBytes, upTo, wordsOf } from "./case.ts"
import * as Kernels from "../../ConformanceKernels.ts"

/** Rows of no sum are among them, and small numbers, whose sums are exact in any order. */
const numbers = upTo(Kernels.count).map((i) => (i * i + 3 * i) % (Kernels.sums + 2))
const values = upTo(Kernels.count).map((i) => (i * 7) % 11 - 5)

const counts = (dtype: DType.DType): Cases[string] => ({ device, load }) =>
  Effect.gen(function*() {
    const words = (values: ReadonlyArray<number>): ReadonlyArray<number> =>
      dtype === DType.f32 ? wordsOf(floatBytes(values)) : values.map((x) => x >>> 0)
    const wanted = upTo(Kernels.sums).map((row) =>
      values.reduce((sum, x, i) => numbers[i] === row ? sum + x : sum, row)
    )
    const output = yield* filled(device, "sums", words(upTo(Kernels.sums)))
    const buffers = [output, yield* filled(device, "numbers", numbers), yield* filled(device, "values", words(values))]
    yield* (yield* device.plan([{ executable: yield* load(Kernels.counted(dtype)), buffers }])).run({})
    yield* expectWords(device, output, words(wanted))
  })

/** The cases of additions. */
export const additions: Cases = {
  "a store that accumulates adds to what is there": ({ device, load }) =>
    Effect.gen(function*() {
      const n = Kernels.count
      const input = yield* filled(device, "input", upTo(n))
      const output = yield* filled(device, "output", upTo(n).map((i) => 3 * i))
      const plan = yield* device.plan([{ executable: yield* load(Kernels.addedTo), buffers: [output, input] }])
      yield* plan.run({})
      yield* plan.run({})
      yield* expectWords(device, output, upTo(n).map((i) => 5 * i))
    }),
  ...Object.fromEntries(
    [DType.u32, DType.i32, DType.f32].map((dtype) => [`atomic additions of ${dtype.scalar} lose none`, counts(dtype)])
  )
}
