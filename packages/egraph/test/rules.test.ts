import { choose, explore, graphOf } from "@tg/egraph/Optimise"
import { h200, wasm } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import * as Spec from "@tg/core-uop/Spec"
import * as DType from "@tg/core-uop/DType"
import type { Rule } from "@tg/egraph/Rule"
import { all } from "@tg/egraph/rules/index"
import { writer } from "@tg/egraph/Write"
import * as Program from "@tg/tensor/Program"
import { buffer, Tensor } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { difference, sample, valuesOf } from "./support/programs.ts"

const seeds = Array.from({ length: 300 }, (_, i) => i + 1)

/** Programs as they are read. */
const programs = seeds.map((seed) => {
  const { contents, residency, root } = sample(seed)
  const { graph } = graphOf([root], residency)
  const choice = new Map(graph.classes().map((cls) => [cls, graph.members(cls)[0]!.node]))
  // positive, so that nothing cancels
  return { seed, graph, buffers: contents(0.25), written: writer(graph, choice, root.arena) }
})

/** Both sides of whatever a rule says about them, and how far apart they are. */
const sidesOf = (rule: Rule) =>
  programs.flatMap(({ buffers, graph, seed, written }) =>
    graph.classes().flatMap((cls) =>
      graph.members(cls).flatMap(({ id, node }) =>
        [...rule.rewrites(graph, id, node)].map(({ from, to }) => {
          const sides = [written.node(from), written.term(to)]
          const [a, b] = valuesOf(sides, buffers, false)
          return { seed, shapes: sides.map((side) => Shape.print(Shape.of(side))), apart: difference(a!, b!) }
        })
      )
    )
  )

describe("each rule keeps values within its bound", () => {
  for (const rule of all) {
    it(`${rule.name}: ${rule.equation}`, () => {
      const found = sidesOf(rule)
      expect(found.length).toBeGreaterThan(10)
      expect(found.filter(({ apart, shapes }) => !(apart <= rule.bound) || shapes[0] !== shapes[1])).toEqual([])
    })
  }
})

describe("random programs, saturated with all rules and extracted", () => {
  const bounds = { nodes: 1200, rounds: 4, millis: 60_000 }
  const profiles = { h200, wasm, "launches cost nothing": { dispatchMicros: 0, bytesPerMicro: 1 } }
  for (const [name, profile] of Object.entries(profiles)) {
    it(`have the same values: ${name}`, () => {
      let changed = 0
      for (const seed of seeds.slice(0, 80)) {
        const { contents, residency, root } = sample(seed)
        const explored = explore([root], { residency, rules: all, bounds })
        const chosen = choose(explored, { profile, vars: {}, folds: seed % 2 === 0 })
        expect(chosen.micros).toBeLessThanOrEqual(chosen.writtenMicros)
        if (chosen.roots[0] !== root) changed++
        const [a, b] = valuesOf([root, chosen.roots[0]!], contents(-1), true)
        expect({ seed, apart: difference(a!, b!) < 1e-9 }).toEqual({ seed, apart: true })
        const target = buffer(root.arena, 0, { shape: Shape.of(root), dtype: DType.f32 })
        expect(Spec.check("tensor", Program.sink([Program.assign(target, new Tensor(chosen.roots[0]!))]))).toEqual([])
      }
      expect(changed).toBeGreaterThan(20)
    })
  }
})
