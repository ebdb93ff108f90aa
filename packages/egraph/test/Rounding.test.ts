import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as DType from "@tg/core-uop/DType"
import { wasm } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import type { Residency } from "@tg/egraph/Analysis"
import { choose, explore, graphOf } from "@tg/egraph/Optimise"
import { ofBodies, round } from "@tg/egraph/rules/index"
import { writer } from "@tg/egraph/Write"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import { param, type Tensor } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { difference } from "./support/programs.ts"
import { random } from "./support/random.ts"

/** A product of `x` with rows that are bytes, `x` in one of some layouts, and what its storage holds. */
const sample = (seed: number) => {
  const rng = random(seed)
  const arena = new Arena()
  const [tokens, heads, blocks] = [rng.pick([1, 2, 3]), rng.pick([1, 2, 4]), rng.pick([1, 2, 3])]
  const rows = rng.pick([1, 3, 4])
  const parts = rng.pick([1, 2] as const)
  const buffers = new Map<UOp, Float32Array | Uint32Array>()
  const storage = (shape: ReadonlyArray<number>): Tensor => {
    const x = param(arena, buffers.size, { shape, dtype: DType.f32 })
    buffers.set(x.node, Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => 0.25 + 0.75 * rng.next()))
    return x
  }
  const x = rng.pick([
    () => storage([tokens, heads, 32 * blocks]),
    () => storage([heads, 32 * blocks, tokens]).permute([2, 0, 1]),
    () => storage([tokens, heads * 32 * blocks]).reshape([tokens, heads, 32 * blocks]),
    () => storage([tokens, heads, 32 * blocks + 4]).slice(-1, 4, 32 * blocks)
  ])()
  const lead = rng.pick([[heads, rows], [rows]])
  const words = param(arena, buffers.size, { shape: [...lead, blocks, 2, 4], dtype: DType.u32 })
  const count = lead.reduce((a, b) => a * b, 8 * blocks)
  const zero = rng.pick([0, 8])
  // bytes from 8 on
  const byte = (): number => 8 + Math.floor(rng.next() * 100)
  buffers.set(
    words.node,
    Uint32Array.from({ length: count }, () => byte() | byte() << 8 | byte() << 16 | byte() << 24)
  )
  const scale = storage([...lead, blocks, parts])
  const values = Int8.values({ words, scale, zero, minimum: rng.pick([undefined, scale.mul(0.5)]) })
  // as each head has its own rows, or all have the same
  const spread = lead.length === 2 ? x : x.reshape([tokens * heads, 32 * blocks])
  const root = rng.pick([
    (y: Tensor) => y,
    (y: Tensor) => y.permute([...y.shape.keys()].toReversed())
  ])(Nn.contract(spread, values, Int8.rowRank))
  const residency = (storage: UOp): Residency => toposort(values.node).includes(storage) ? "weight" : "activation"
  return { root, residency, buffers }
}

const seeds = Array.from({ length: 60 }, (_, i) => i + 1)
const valuesOf = (roots: ReadonlyArray<UOp>, buffers: ReturnType<typeof sample>["buffers"]) =>
  evaluate(roots, { buffers }).map((value) => Array.from(value!.data))

describe("rounding what is multiplied with bytes", () => {
  it("changes values within its bound, in all layouts", () => {
    let count = 0
    for (const seed of seeds) {
      const { buffers, residency, root } = sample(seed)
      const { graph } = graphOf([root.node], residency)
      const written = writer(
        graph,
        new Map(graph.classes().map((cls) => [cls, graph.members(cls)[0]!.node])),
        root.arena
      )
      for (const cls of graph.classes()) {
        for (const { id, node } of graph.members(cls)) {
          for (const { from, to } of round.rewrites(graph, id, node)) {
            count++
            const sides = [written.node(from), written.term(to)]
            expect(Shape.of(sides[1]!)).toEqual(Shape.of(sides[0]!))
            expect(toposort(sides[1]!).some(({ op }) => op === "DOT4I8")).toBe(true)
            const [a, b] = valuesOf(sides, buffers)
            expect({ seed, isWithin: difference(a!, b!) <= round.bound }).toEqual({ seed, isWithin: true })
          }
        }
      }
    }
    expect(count).toBeGreaterThanOrEqual(seeds.length)
  })

  it("is chosen where a product of bytes costs less, and never of weights that nobody gave as bytes", () => {
    const arena = new Arena()
    const x = param(arena, 0, { shape: [64, 256], dtype: DType.f32 })
    const words = param(arena, 1, { shape: [512, 8, 2, 4], dtype: DType.u32 })
    const scale = param(arena, 2, { shape: [512, 8, 1], dtype: DType.f32 })
    const values = Int8.values({ words, scale, zero: 8, minimum: undefined })
    const residency = (storage: UOp): Residency => storage === x.node ? "activation" : "weight"
    const isRounded = (weights: Tensor): boolean => {
      const root = Nn.contract(x, weights, Int8.rowRank).node
      const explored = explore([root], { residency, rules: ofBodies })
      const chosen = choose(explored, { profile: wasm, vars: {}, hides: true })
      return toposort(chosen.roots[0]!).some(({ op }) => op === "DOT4I8")
    }
    expect(isRounded(values)).toBe(true)
    expect(isRounded(values.mul(2))).toBe(false)
  })
})
