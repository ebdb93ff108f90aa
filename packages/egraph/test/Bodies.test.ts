import { assert, it } from "@effect/vitest"
import { h200 } from "@tg/core-uop/DeviceProfile"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as DType from "@tg/core-uop/DType"
import * as Spec from "@tg/core-uop/Spec"
import * as Shape from "@tg/core-uop/Shape"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import { type BodyReport, isBetter, type Weigh, type Weight } from "@tg/egraph/Bodies"
import { Equality } from "@tg/egraph/Equality"
import * as rules from "@tg/egraph/rules/index"
import { waitsOf } from "@tg/egraph/Rounded"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { buffer, type Tensor, variable } from "@tg/tensor/Tensor"
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

const sizeOf = (node: UOp): number => Shape.of(node).reduce<number>((n, d) => n * Number(d), 1)

/** A compiler that makes a launch of each sum, whose time are its terms. */
const weigh = (sink: UOp) =>
  Effect.sync((): Weight => {
    const sums = toposort(sink).filter(({ op }) => op === "REDUCE")
    return {
      launches: sums.length,
      stages: sums.length,
      pieces: 0,
      micros: sums.reduce((all, { src }) => all + sizeOf(src[0]!), 0)
    }
  })

const optimised = (sink: UOp, weighed: Weigh<never> = weigh, unweighed = 1) =>
  Effect.gen(function*() {
    const equality = yield* Equality
    return yield* equality.optimise(sink, { profile: h200, weigh: weighed, unweighed })
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
    assert.deepStrictEqual(bodies.map(({ isTaken, name, stop }) => [name, stop, isTaken]), [[
      "layer",
      "saturated",
      true
    ]])
    const [{ reasons, searched, weighed }] = bodies as readonly [BodyReport]
    assert.isBelow(searched.found, searched.written)
    // so small, it is faster as one launch of all terms
    assert.deepStrictEqual([weighed?.written.launches, weighed?.found.launches], [2, 1])
    assert.isAbove(reasons().because.length, 0)
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

it.effect("keeps what is written where the compiler gains nothing", () =>
  Effect.gen(function*() {
    const { sink } = program()
    const same = { launches: 9, stages: 9, pieces: 0, micros: 50 }
    const { bodies, sink: now } = yield* optimised(sink, () => Effect.succeed(same))
    assert.strictEqual(now, sink)
    assert.deepStrictEqual(bodies.map(({ isTaken, weighed }) => [isTaken, weighed]), [
      [false, { written: same, found: same }]
    ])
  }).pipe(Effect.provide(Equality.layer)))

it.effect("compiles neither form where the search leaves no doubt", () =>
  Effect.gen(function*() {
    const { sink } = program()
    const { bodies } = yield* optimised(sink, () => Effect.die("it was weighed"), 0.1)
    assert.deepStrictEqual(bodies.map(({ isTaken, weighed }) => [isTaken, weighed]), [[true, undefined]])
    assert.isBelow(bodies[0]!.searched.found, 0.9 * bodies[0]!.searched.written)
  }).pipe(Effect.provide(Equality.layer)))

it.effect("keeps what is written where the search has no room", () =>
  Effect.gen(function*() {
    const { sink } = program()
    const { bodies, sink: now } = yield* optimised(sink)
    assert.strictEqual(now, sink)
    assert.deepStrictEqual(bodies.map(({ isTaken, stop }) => [isTaken, stop]), [[false, "too large"]])
  }).pipe(Effect.provide(Equality.layerWith(rules.ofBodies, { nodes: 8, rounds: 4, millis: 1000 }))))

it.effect("sums over experts run inside of the product, whoever wrote them outside", () =>
  Effect.gen(function*() {
    const arena = new Arena()
    const tensor = (id: number, shape: ReadonlyArray<number>): Tensor => buffer(arena, id, { shape, dtype: DType.f32 })
    const [experts, rows, columns] = [4, 16, 32]
    const [out] = Program.call(
      "experts",
      [tensor(0, [experts, columns]), tensor(1, [experts, rows, columns])],
      (x, w) => [x!.unsqueeze(1).mul(w!).sum(-1).sum(0)]
    )
    const { sink } = Program.make([Program.assign(tensor(2, [rows]), out!)])
    const { bodies, sink: now } = yield* optimised(sink)
    assert.deepStrictEqual(bodies.map(({ weighed }) => [weighed?.written.launches, weighed?.found.launches]), [[2, 1]])
    assert.strictEqual(toposort(now).filter(({ op }) => op === "REDUCE").length, 1)
  }).pipe(Effect.provide(Equality.layer)))

/** A layer that rounds a norm where it is multiplied, with or without something else to find. */
const normedLayer = (isMore: boolean): UOp => {
  const arena = new Arena()
  const tensor = (id: number, shape: ReadonlyArray<number>, dtype = DType.f32): Tensor =>
    buffer(arena, id, { shape, dtype })
  const layer = Program.unit("layer", (x, gain, words, scale, w, v) => [
    Int8.contract(Int8.blocks(Nn.rmsNorm(x!, gain!, 1e-5)), {
      words: words!,
      scale: scale!,
      zero: 8,
      minimum: undefined
    }),
    ...isMore ? [Nn.matmul(Nn.matmul(w!, v!), x!.permute([1, 0]))] : []
  ])
  const blocks = n / Int8.blockValues
  const results = layer([
    tensor(0, [1, n]),
    tensor(1, [n]),
    tensor(2, [n, blocks, 2, 4], DType.u32),
    tensor(3, [n, blocks, 1]),
    tensor(4, [n, n]),
    tensor(5, [n, n])
  ])
  return Program.make(results.map((y, i) => Program.assign(tensor(6 + i, i === 0 ? [1, n] : [n, 1]), y))).sink
}

/** Whether some workgroup waits for the norm's factor before it rounds. */
const waits = (sink: UOp): boolean => toposort(sink).some((node) => waitsOf(node) > 0)

it.effect("compiles neither form where the search alone decides", () =>
  Effect.gen(function*() {
    const sink = normedLayer(false)
    assert.isTrue(waits(sink))
    const { bodies, sink: now } = yield* optimised(sink, () => Effect.die("it was weighed"))
    assert.isFalse(waits(now))
    assert.deepStrictEqual(bodies.map(({ isTaken, weighed }) => [isTaken, weighed]), [[true, undefined]])
    assert.isAbove(bodies[0]!.reasons().because.length, 0)
  }).pipe(Effect.provide(Equality.layer)))

it.effect("keeps what the search decides alone, where the compiler gains nothing by all else", () =>
  Effect.gen(function*() {
    const same = { launches: 9, stages: 9, pieces: 0, micros: 50 }
    const { bodies, sink: now } = yield* optimised(normedLayer(true), (form) =>
      Effect.sync(() => {
        assert.isFalse(waits(form))
        return same
      }))
    assert.isFalse(waits(now))
    assert.deepStrictEqual(bodies.map(({ isTaken, weighed }) => [isTaken, weighed]), [
      [false, { written: same, found: same }]
    ])
  }).pipe(Effect.provide(Equality.layer)))

it("takes another form for what is seen, and not for noise", () => {
  const written: Weight = { launches: 9, stages: 20, pieces: 1, micros: 50 }
  const cases: ReadonlyArray<readonly [Partial<Weight>, boolean]> = [
    [{ micros: 49.5 }, false],
    [{ micros: 48.9 }, true],
    [{ micros: 40, launches: 10 }, false],
    [{ micros: 40, pieces: 0 }, false],
    [{ micros: 60, pieces: 2 }, true],
    [{ micros: 60, pieces: 2, launches: 10 }, false],
    [{ launches: 8 }, true],
    [{ launches: 8, micros: 50.1 }, false],
    [{ stages: 19 }, true],
    [{ stages: 19, micros: 50.1 }, false],
    [{}, false]
  ]
  for (const [found, expected] of cases) {
    assert.strictEqual(isBetter({ ...written, ...found }, written), expected, JSON.stringify(found))
  }
})

/** What a search counts for (W V) x on such a device, for so many columns of x. */
const searchedFor = (kind: "cpu" | "gpu", columns: number | "tiles") =>
  Effect.gen(function*() {
    const arena = new Arena()
    const tokens = columns === "tiles" ? variable(arena, "tiles", 1, 8).mul(16) : columns
    const tensor = (id: number, shape: ReadonlyArray<number>): Tensor => buffer(arena, id, { shape, dtype: DType.f32 })
    const layer = Program.unit("layer", (x, w, v) => [Nn.matmul(Nn.matmul(w!, v!), x!)])
    const [y] = layer([tensor(2, [n, 128]).slice(1, 0, tokens), tensor(0, [n, n]), tensor(1, [n, n])])
    const { sink } = Program.make([Program.assign(tensor(3, [n, 128]).slice(1, 0, tokens), y!)])
    const equality = yield* Equality
    const profile = { kind, dispatchMicros: 1, bytesPerMicro: 100, processors: 1 }
    return (yield* equality.optimise(sink, { profile, weigh })).bodies[0]!.searched
  })

it.effect("counts the batches of a CPU as full ones, and those of a GPU as a quarter", () =>
  Effect.gen(function*() {
    assert.deepStrictEqual(yield* searchedFor("cpu", "tiles"), yield* searchedFor("cpu", 128))
    assert.deepStrictEqual(yield* searchedFor("gpu", "tiles"), yield* searchedFor("gpu", 32))
    assert.notDeepEqual(yield* searchedFor("gpu", 32), yield* searchedFor("gpu", 128))
  }).pipe(Effect.provide(Equality.layer)))
