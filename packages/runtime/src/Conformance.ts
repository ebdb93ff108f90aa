import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import { Arena } from "@tg/core-uop/UOp"
import { Effect } from "effect"
import {
  type Bench,
  type Cases,
  type Compile,
  type ConformanceFailure,
  filled,
  floatBytes,
  floatsOf,
  same,
  wordsOf
} from "./internal/conformance/case.ts"
import { additions } from "./internal/conformance/additions.ts"
import { memory } from "./internal/conformance/memory.ts"
import * as Operations from "./ConformanceOperations.ts"
import { programs } from "./internal/conformance/programs.ts"
import { refusals } from "./internal/conformance/refusals.ts"
import { Device, type DeviceError } from "./Device.ts"

export { type Compile, ConformanceFailure } from "./internal/conformance/case.ts"

/** One thing every device does. */
export interface Case<E, R> {
  readonly name: string
  readonly effect: Effect.Effect<void, ConformanceFailure | DeviceError | E, Device | R>
}

const wordsFrom = (scalar: Operations.Scalar, values: ReadonlyArray<number>): ReadonlyArray<number> =>
  scalar === "f32" ? wordsOf(floatBytes(values)) : values.map((x) => x >>> 0)

/** What the evaluator gives. */
const resultsOf = (scalar: Operations.Scalar): Uint32Array => {
  const out = new Uint32Array(Operations.count(scalar))
  const inputs = Operations.inputs[scalar].map((values) => Uint32Array.from(wordsFrom(scalar, values)))
  evaluateKernel(Operations.operations(scalar)(new Arena()), new Map([[0, out], [1, inputs[0]!], [2, inputs[1]!]]))
  return out
}

/** The operations of one type: what the device computes is what the evaluator does. */
const operationsOn = (scalar: Operations.Scalar) => <E, R>({ device, load }: Bench<E, R>) =>
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
  })

const operations: Cases = Object.fromEntries(
  Operations.dtypes.map((scalar) => [`the operations that every renderer renders, on ${scalar}`, operationsOn(scalar)])
)

/** Everything the `Device` contract promises, as cases to run with any test framework. */
export const cases = <E, R>(compile: Compile<E, R>): ReadonlyArray<Case<E, R>> =>
  Object.entries({ ...memory, ...programs, ...operations, ...additions, ...refusals }).map(([name, run]) => ({
    name,
    effect: Effect.scoped(Effect.gen(function*() {
      const device = yield* Device
      const load: Bench<E, R>["load"] = (kernel) => Effect.flatMap(compile(kernel(new Arena())), device.load)
      yield* run<E, R>({ device, compile, load })
    })) as Case<E, R>["effect"]
  }))
