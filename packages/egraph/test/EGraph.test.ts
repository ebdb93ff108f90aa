import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import * as Analysis from "@tg/egraph/Analysis"
import { EGraph } from "@tg/egraph/EGraph"
import { explain } from "@tg/egraph/Explain"
import { analysis } from "@tg/egraph/Facts"
import { graphOf } from "@tg/egraph/Optimise"
import { usual } from "@tg/egraph/rules/index"
import { saturate } from "@tg/egraph/Saturate"
import { param } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { sample } from "./support/programs.ts"

const makeGraph = () => {
  const arena = new Arena()
  const graph = new EGraph(analysis(() => "activation"))
  const leaf = (slot: number, shape: ReadonlyArray<number> = [4]) =>
    graph.add({
      kind: "other",
      args: [],
      origin: { uop: param(arena, slot, { shape, dtype: DType.f32 }).node, holes: [] }
    })
  const add = (a: number, b: number) => graph.add({ kind: "pointwise", op: "ADD", args: [a, b] })
  return { graph, leaf, add }
}

const by = (rule: string) => ({ kind: "rule", rule }) as const

describe("EGraph", () => {
  it("gives equal nodes one number", () => {
    const { add, leaf } = makeGraph()
    expect(add(leaf(0), leaf(1))).toBe(add(leaf(0), leaf(1)))
    expect(add(leaf(0), leaf(1))).not.toBe(add(leaf(1), leaf(0)))
  })

  it("has clones that go their own way, with the same numbers", () => {
    const { add, graph, leaf } = makeGraph()
    const [a, b] = [add(leaf(0), leaf(2)), add(leaf(1), leaf(2))]
    const copy = graph.clone()
    copy.union(leaf(0), leaf(1), by("given"))
    copy.rebuild()
    expect(copy.areEqual(a, b)).toBe(true)
    expect(graph.areEqual(a, b)).toBe(false)
    expect(explain(copy, a, b)?.map(({ rule }) => rule)).toEqual(["given"])
    const next = graph.size
    expect([add(a, b), copy.add({ kind: "pointwise", op: "ADD", args: [b, leaf(2)] })]).toEqual([next, next])
  })

  it("closes congruence upwards, however deep", () => {
    const { add, graph, leaf } = makeGraph()
    const tower = (x: number): number => add(add(add(x, x), leaf(2)), leaf(3))
    const [a, b] = [tower(leaf(0)), tower(leaf(1))]
    expect(graph.areEqual(a, b)).toBe(false)
    graph.union(leaf(0), leaf(1), by("same"))
    graph.rebuild()
    expect(graph.areEqual(a, b)).toBe(true)
    expect(explain(graph, a, b)!.map(({ rule }) => rule)).toEqual(["same"])
  })

  it("explains by the shortest way there is in the proof, each argument once", () => {
    const { add, graph, leaf } = makeGraph()
    const [a, b, c, d] = [leaf(0), leaf(1), leaf(2), leaf(3)]
    graph.union(a, b, by("ab"))
    graph.union(c, d, by("cd"))
    graph.union(b, c, by("bc"))
    graph.rebuild()
    expect(explain(graph, a, d)!.map(({ rule }) => rule)).toEqual(["ab", "bc", "cd"])
    expect(explain(graph, add(a, a), add(d, d))!.map(({ rule }) => rule)).toEqual(["ab", "bc", "cd"])
    expect(explain(graph, a, a)).toEqual([])
    expect(explain(graph, a, leaf(9))).toBeUndefined()
  })

  it("knows that a union of different shapes is a defect of a rule", () => {
    const { graph, leaf } = makeGraph()
    expect(() => graph.union(leaf(0, [4]), leaf(1, [5]), by("wrong"))).toThrow("shape [4] and [5]")
  })

  it("lets equal nodes teach each other where they come from, and those above them", () => {
    const arena = new Arena()
    const graph = new EGraph(analysis(({ arg }) => (arg as { readonly slot: number }).slot === 0 ? "weight" : "cache"))
    const leaf = (slot: number) =>
      graph.add({
        kind: "other",
        args: [],
        origin: { uop: param(arena, slot, { shape: [4], dtype: DType.f32 }).node, holes: [] }
      })
    const both = graph.add({ kind: "pointwise", op: "ADD", args: [leaf(0), leaf(1)] })
    const above = graph.add({ kind: "pointwise", op: "ADD", args: [both, leaf(0)] })
    expect(Analysis.places(graph.facts(above).residency)).toEqual(["weight", "cache"])
    graph.union(both, leaf(0), by("zero"))
    graph.rebuild()
    expect(Analysis.places(graph.facts(above).residency)).toEqual(["weight"])
  })

  it("explains whatever it has found, and saturates the same way each time", () => {
    for (let seed = 1; seed <= 30; seed++) {
      const { residency, root } = sample(seed)
      const runs = [1, 2].map(() => {
        const { graph } = graphOf([root], residency)
        saturate(graph, usual, { bounds: { nodes: 500, rounds: 3, millis: 60_000 }, now: () => 0 })
        return graph
      })
      const [graph, again] = runs
      expect(again!.size).toBe(graph!.size)
      for (const cls of graph!.classes()) {
        const [first, ...others] = graph!.members(cls)
        for (const { id } of others) expect(explain(graph!, first!.id, id)!.length).toBeGreaterThan(0)
      }
    }
  })
})

describe("saturation", () => {
  const { residency, root } = sample(7)
  const run = (bounds: { readonly nodes: number; readonly rounds: number; readonly millis: number }, now = () => 0) => {
    const { graph } = graphOf([root], residency)
    return { ...saturate(graph, usual, { bounds, now }), size: graph.size }
  }

  it("stops at its bounds", () => {
    expect(run({ nodes: 4000, rounds: 1, millis: 1 }).stop).toBe("rounds")
    expect(run({ nodes: 8, rounds: 9, millis: 1 }).stop).toBe("nodes")
    let clock = 0
    expect(run({ nodes: 4000, rounds: 9, millis: 3 }, () => clock++).stop).toBe("time")
  })
})
