import { type DeviceProfile, h200, wasm } from "@tg/core-uop/DeviceProfile"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import type { Residency } from "@tg/egraph/Analysis"
import { choose, explore, graphOf } from "@tg/egraph/Optimise"
import { ofBodies, on, storeHalves } from "@tg/egraph/rules/index"
import { writer } from "@tg/egraph/Write"
import * as Nn from "@tg/tensor/Nn"
import { param, scalar, type Tensor, variable } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"

const [heads, features, rows] = [4, 32, 128]
const vars = { tiles: 2, pieces: 1 }

/** Scores of tokens against rows of a cache of halves: tokens in whole tiles, or a few. */
const sample = (layout: "tiles" | "few") => {
  const arena = new Arena()
  const most = 128
  const query = param(arena, 0, { shape: [most, heads, features], dtype: DType.f32 })
  const cache = param(arena, 1, { shape: [rows, features], dtype: DType.u32 })
  const tokens = layout === "few" ? scalar(arena, 4) : variable(arena, "tiles", 1, most / 16).mul(16)
  const seen = cache.slice(0, 0, variable(arena, "pieces", 1, rows / 64).mul(64))
  const some: Tensor = query.slice(0, 0, layout === "few" ? 4 : tokens)
  const root = Nn.contract(some, seen.halfToFloat(), 1)
  const buffers = new Map<UOp, Float32Array | Uint32Array>([
    [query.node, Float32Array.from({ length: most * heads * features }, (_, i) => (i * 7 % 13) / 13 - 0.4)],
    // normal halves, of both signs
    [
      cache.node,
      Uint32Array.from({ length: rows * features }, (_, i) => 0x3000 + Math.imul(i, 37) % 0x800 + (i & 1) * 0x8000)
    ]
  ])
  const residency = (storage: UOp): Residency => storage === cache.node ? "cache" : "activation"
  return { root: root.node, buffers, residency }
}

const isStored = (root: UOp): boolean =>
  toposort(root).some(({ op, src }) => op === "CONTIGUOUS" && src[0]!.op === "HALF_TO_FLOAT")

describe("halves that tiles of tokens read", () => {
  const chosen = (layout: "tiles" | "few", profile: DeviceProfile, counts = { tiles: 8, pieces: 2 }): UOp => {
    const { residency, root } = sample(layout)
    const explored = explore([root], { residency, rules: ofBodies })
    return choose(explored, { profile, vars: counts, hides: true }).roots[0]!
  }

  it("are floats of the same value when they are stored", () => {
    const { buffers, residency, root } = sample("tiles")
    const { graph } = graphOf([root], residency)
    const choice = new Map(graph.classes().map((cls) => [cls, graph.members(cls)[0]!.node]))
    const written = writer(graph, choice, root.arena)
    const sides = graph.classes().flatMap((cls) =>
      graph.members(cls).flatMap(({ id, node }) => [...storeHalves.rewrites(graph, id, node)])
    ).map(({ from, to }) => [written.node(from), written.term(to)] as const)
    expect(sides.length).toBeGreaterThan(0)
    for (const [from, to] of sides) {
      expect(isStored(to)).toBe(true)
      expect(Shape.of(to)).toEqual(Shape.of(from))
      const [a, b] = evaluate([from, to], { buffers, vars }).map((value) => Array.from(value!.data))
      expect(a!.some((x) => x !== 0)).toBe(true)
      expect(b).toEqual(a)
    }
  })

  it("are stored where converting them is work, and many tokens read them", () => {
    expect(isStored(chosen("tiles", wasm))).toBe(true)
    expect(isStored(chosen("few", wasm))).toBe(false)
    // where loads hide it
    expect(isStored(chosen("tiles", { ...wasm, halfOperations: undefined }))).toBe(false)
    expect(isStored(chosen("tiles", h200))).toBe(false)
  })

  it("are looked for only where that may gain", () => {
    expect(on(wasm, ofBodies)).toContain(storeHalves)
    expect(on(h200, ofBodies)).not.toContain(storeHalves)
  })
})
