import { assert, describe, it } from "@effect/vitest"
import { h200, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import { IllegalOpt, legal } from "@tg/postrange/Postrange"
import { isCascade } from "../src/Cascades.ts"
import { choose, type Place } from "../src/Heuristics.ts"

const [positions, features, most] = [64, 64, 3]

/**
 * Of each piece of a cache `[pieces, positions, features]` and rows `[blocks, rows, features]` a record: what the weights of the positions sum up of
 * the cache, and beside it their sum and the largest score. Pieces lie one behind the other, or where a table of pages says.
 */
const pieces = (rows: number, { blocks = 2, isPaged = false } = {}): UOp => {
  const arena = new Arena()
  const width = features + 2
  const param = (slot: number, length: number, dtype: DType.DType = DType.f32): UOp =>
    arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })
  const [block, piece] = [
    Expr.range(arena, blocks, 0, "GLOBAL"),
    Expr.range(arena, Expr.variable(arena, "n", 1, most), 1, "GLOBAL")
  ]
  let id = 2
  const loop = (size: number, axis: "GLOBAL" | "LOOP" | "REDUCE"): UOp => Expr.range(arena, size, id++, axis)
  const at = (...digits: ReadonlyArray<readonly [UOp, number]>): UOp =>
    digits.reduce((sum, [digit, size]) => Expr.add(Expr.mul(sum, size), digit), Expr.int(arena, 0))
  const local = (number: number, length: number): UOp =>
    arena.make("LOCAL", DType.f32, [block, piece], { id: number, length })
  const page = isPaged
    ? Expr.cast(Expr.load(Expr.element(param(3, most, DType.i32), piece)), DType.index)
    : piece
  const cached = (position: UOp, feature: UOp): UOp =>
    Expr.load(
      Expr.element(param(1, most * positions * features), at([page, most], [position, positions], [feature, features]))
    )
  const end = (element: UOp, value: UOp, ...loops: ReadonlyArray<UOp>): UOp =>
    arena.make("END", DType.none, [Expr.store(element, value), block, piece, ...loops])
  const [scores, maxima, weights] = [local(0, rows * positions), local(1, rows), local(2, rows * positions)]
  const of = (memory: UOp, row: UOp, position?: UOp): UOp =>
    Expr.element(memory, position === undefined ? row : at([row, rows], [position, positions]))

  const [r0, s0, k] = [loop(rows, "LOOP"), loop(positions, "LOOP"), loop(features, "REDUCE")]
  const query = Expr.load(
    Expr.element(param(2, blocks * rows * features), at([block, blocks], [r0, rows], [k, features]))
  )
  const first = end(of(scores, r0, s0), Expr.reduce("ADD", Expr.mul(cached(s0, k), query), [k]), r0, s0)
  const [r1, s1] = [loop(rows, "LOOP"), loop(positions, "REDUCE")]
  const second = end(of(maxima, r1), Expr.reduce("MAX", Expr.load(of(scores, r1, s1)), [s1]), r1)
  const [r2, s2] = [loop(rows, "LOOP"), loop(positions, "LOOP")]
  const less = Expr.sub(Expr.load(of(scores, r2, s2)), Expr.load(of(maxima, r2)))
  const third = end(of(weights, r2, s2), arena.make("EXP2", DType.f32, [less]), r2, s2)
  const out = (row: UOp, column: UOp): UOp =>
    Expr.element(
      param(0, blocks * most * rows * width),
      at([block, blocks], [row, rows], [piece, most], [column, width])
    )
  const [r3, column, s3] = [loop(rows, "LOOP"), loop(2, "LOOP"), loop(positions, "REDUCE")]
  const sum = Expr.reduce("ADD", Expr.load(of(weights, r3, s3)), [s3])
  const state = Expr.where(Expr.lt(column, 1), sum, Expr.load(of(maxima, r3)))
  const fourth = end(out(r3, Expr.add(column, features)), state, r3, column)
  const [r4, feature, s4] = [loop(rows, "GLOBAL"), loop(features, "GLOBAL"), loop(positions, "REDUCE")]
  const mix = Expr.reduce("ADD", Expr.mul(Expr.load(of(weights, r4, s4)), cached(s4, feature)), [s4])
  return arena.make("SINK", DType.none, [first, second, third, fourth, end(out(r4, feature), mix, r4, feature)])
}

const opted = (kernel: UOp, profile = h200, place: Place = "launch"): UOp => {
  const made = legal(kernel, choose(kernel, profile, { place }), profile)
  if (made instanceof IllegalOpt) throw made
  return made
}

/** An H200 of one processor, on which these workgroups are not all resident. */
const crowded = { ...h200, processors: 1, saturatingThreads: 1024 }

/** The product of the sizes of an END's loops of one kind. */
const sizes = (end: UOp, axis: string): number =>
  Loops.ofEnd(end).filter((loop) => loop.axis === axis).reduce((n, { size }) => n * size, 1)

const run = (kernel: UOp, rows: number): Float32Array => {
  const out = new Float32Array(2 * most * rows * (features + 2))
  const data = (length: number): Float32Array => Float32Array.from({ length }, (_, i) => Math.sin(i * 0.7) / 8)
  const table = Int32Array.of(2, 0, 1)
  evaluateKernel(kernel, [out, data(most * positions * features), data(2 * rows * features), table], { n: 2 })
  return out
}

describe("a piece of a cascade", () => {
  it("is told by the states beside the mix, which have an END of their own", () => {
    const kernel = pieces(4)
    assert.isTrue(isCascade(kernel))
    assert.isFalse(isCascade(kernel.with(kernel.src.slice(0, 3))))
  })

  it("gives each thread several rows as far as all threads have some, and no thread a part of a sum over positions", () => {
    for (const [rows, each] of [[4, 1], [8, 1], [16, 2], [32, 4]] as const) {
      const made = opted(pieces(rows), crowded)
      const [scores, , , state, mix] = made.src as [UOp, UOp, UOp, UOp, UOp]
      // rows and positions; rows and a vector of columns
      assert.deepStrictEqual([sizes(scores, "UPCAST"), sizes(mix, "UPCAST")], [16, each * 4])
      assert.deepStrictEqual(Loops.reductions(mix).map(Loops.groupOf).at(-1), 1)
      assert.strictEqual(sizes(state, "UPCAST"), 2)
      assert.isAtMost(Loops.threads(made), 128)
    }
  })

  it("has twice the threads, each of which has half of the positions, where all workgroups are resident", () => {
    for (const rows of [4, 8, 16, 32]) {
      const [few, many] = [h200, crowded].map((profile) => opted(pieces(rows), profile))
      assert.strictEqual(Loops.threads(few!), 2 * Loops.threads(many!))
      assert.strictEqual(2 * sizes(few!.src[0]!, "UPCAST"), sizes(many!.src[0]!, "UPCAST"))
    }
  })

  it("without its states has more threads as a phase, each with fewer terms, and its values", () => {
    const whole = pieces(1)
    const mixed = whole.with(whole.src.filter((_, i) => i !== 3))
    const [alone, phase] = (["launch", "phase"] as const).map((place) => opted(mixed, h200, place)) as [UOp, UOp]
    assert.deepStrictEqual([alone, phase].map(Loops.threads), [128, 512])
    run(phase, 1).forEach((value, i) => assert.closeTo(value, run(mixed, 1)[i]!, 1e-5))
    // a device with small workgroups has nothing to choose
    const [small, own] = (["launch", "phase"] as const).map((place) => choose(mixed, webgpuDefault, { place }))
    assert.deepStrictEqual(small, own)
  })

  it("has threads for all columns, wherever its pages lie", () => {
    for (const rows of [4, 8, 16]) {
      const [own, paged] = [false, true].map((isPaged) => opted(pieces(rows, { isPaged })).src.at(-1)!)
      assert.strictEqual(sizes(paged!, "LOCAL"), sizes(own!, "LOCAL"))
      assert.strictEqual(sizes(paged!, "UPCAST"), sizes(own!, "UPCAST"))
    }
  })

  it("has its values", () => {
    for (const rows of [1, 2, 4, 6, 16]) {
      for (const isPaged of [false, true]) {
        const plain = run(pieces(rows, { isPaged }), rows)
        for (const profile of [h200, crowded, webgpuDefault]) {
          const got = run(opted(pieces(rows, { isPaged }), profile), rows)
          got.forEach((value, i) => assert.closeTo(value, plain[i]!, 1e-5, `${rows} rows, element ${i}`))
        }
      }
    }
  })
})
