import { assert, it } from "@effect/vitest"
import { h200 } from "@tg/core-uop/DeviceProfile"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as DType from "@tg/core-uop/DType"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { Equality } from "@tg/egraph/Equality"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { buffer, type Tensor } from "@tg/tensor/Tensor"
import { Effect } from "effect"
import { difference } from "./support/programs.ts"

const n = 64

/** Two calls of one body, y = (W V) x, which also keeps what it read. */
const program = () => {
  const arena = new Arena()
  const tensor = (id: number, shape: ReadonlyArray<number>): Tensor => buffer(arena, id, { shape, dtype: DType.f32 })
  const [w, v, x, out, kept] = [
    tensor(0, [n, n]),
    tensor(1, [n, n]),
    tensor(2, [n, 1]),
    tensor(3, [n, 1]),
    tensor(4, [n, 1])
  ]
  const layer = Program.unit("layer", (x, w, v, kept) => [
    Nn.matmul(Nn.matmul(w!, v!), x!),
    Program.assign(kept!, x!.mul(2))
  ])
  const [first, effect] = layer([x, w, v, kept])
  const [second, again] = layer([first!, w, v, Program.after(kept, [effect!])])
  const made = Program.make([Program.assign(out, second!), again!])
  const contents = new Map<UOp, Float32Array>(
    [w, v, x, out, kept].map(({ node, shape }, i) => [
      node,
      Float32Array.from(
        { length: shape.reduce<number>((a, b) => a * Number(b), 1) },
        (_, k) => (k * 7 + i) % 11 / 11 - 0.4
      )
    ])
  )
  return { sink: made.sink, contents, written: [out.node, kept.node] }
}

const optimised = (sink: UOp) =>
  Effect.gen(function*() {
    const equality = yield* Equality
    return yield* equality.optimise(sink, { residency: () => "weight", situation: { profile: h200, vars: {} } })
  })

/** What the program leaves in the buffers that it writes. */
const results = (sink: UOp, { contents, written }: ReturnType<typeof program>) => {
  const buffers = new Map([...contents].map(([node, data]) => [node, Float64Array.from(data)]))
  evaluate([sink], { buffers, float64: true })
  return written.map((node) => Array.from(buffers.get(node)!))
}

it.effect("optimises each distinct body once, and keeps its effects", () =>
  Effect.gen(function*() {
    const made = program()
    const { bodies, sink: now } = yield* optimised(made.sink)
    assert.deepStrictEqual(bodies.map(({ name, stop }) => [name, stop]), [["layer", "saturated"]])
    assert.isBelow(bodies[0]!.micros, bodies[0]!.writtenMicros)
    assert.isAbove(bodies[0]!.because.length, 0)
    assert.deepStrictEqual(Spec.check("tensor", now), [])
    const after = results(now, made)
    for (const [i, before] of results(made.sink, made).entries()) {
      assert.isAbove(Math.max(...before), 0)
      assert.isBelow(difference(before, after[i]!), 1e-12)
    }
  }).pipe(Effect.provide(Equality.layer)))

it.effect("leaves programs alone where it is off", () =>
  Effect.gen(function*() {
    const { sink } = program()
    assert.strictEqual((yield* optimised(sink)).sink, sink)
  }).pipe(Effect.provide(Equality.layerNone)))
