import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { EGraph } from "@tg/egraph/EGraph"
import type { ClassId, ENode } from "@tg/egraph/ENode"
import { cheapest, extract } from "@tg/egraph/Extract"
import { analysis } from "@tg/egraph/Facts"
import { Cost, EqCost } from "@tg/rangeify/Cost"
import { param } from "@tg/tensor/Tensor"
import type { Semiring } from "fp-ts/Semiring"
import { describe, expect, it } from "vitest"

const arena = new Arena()
const makeGraph = () => {
  const graph = new EGraph(analysis(() => "activation"))
  const leaf = (slot: number) =>
    graph.add({
      kind: "other",
      args: [],
      origin: { uop: param(arena, slot, { shape: [], dtype: DType.f32 }).node, holes: [] }
    })
  const node = (op: "ADD" | "FDIV", a: ClassId, b: ClassId) => graph.add({ kind: "pointwise", op, args: [a, b] })
  const union = (a: ClassId, b: ClassId) => {
    graph.union(a, b, { kind: "rule", rule: "given" })
    graph.rebuild()
  }
  return { graph, leaf, node, union }
}

/** Leaves are free. */
const costOf = (price: Readonly<Record<string, number>>) => (node: ENode): number =>
  node.kind === "pointwise" ? price[node.op]! : 0

describe("extract", () => {
  it("finds the cheapest trees; classes that need themselves end there", () => {
    const { graph, leaf, node, union } = makeGraph()
    const [a, b] = [leaf(0), leaf(1)]
    const sum = node("ADD", a, b)
    const quotient = node("FDIV", a, b)
    union(sum, quotient)
    const circular = node("ADD", sum, a)
    union(circular, a)
    const trees = extract(Cost, EqCost)(graph, costOf({ ADD: 5, FDIV: 2 }))
    expect(trees.get(graph.find(sum))).toBe(2)
    expect(trees.get(graph.find(a))).toBe(0)
  })

  it("says in another semiring what can be built at all", () => {
    const { graph, leaf, node, union } = makeGraph()
    const onlyQuotients = (n: ENode): boolean => n.kind !== "pointwise" || n.op === "FDIV"
    const Possible: Semiring<boolean> = { zero: false, one: true, add: (a, b) => a || b, mul: (a, b) => a && b }
    const sum = node("ADD", leaf(0), leaf(1))
    const above = node("FDIV", sum, leaf(0))
    const possible = () =>
      extract(Possible, { equals: Object.is })(graph, onlyQuotients).get(graph.find(above)) ?? false
    expect(possible()).toBe(false)
    union(sum, node("FDIV", leaf(1), leaf(0)))
    expect(possible()).toBe(true)
  })
})

describe("cheapest", () => {
  it("counts what is shared once, where trees count it twice", () => {
    const { graph, leaf, node, union } = makeGraph()
    const [a, b, c] = [leaf(0), leaf(1), leaf(2)]
    const shared = node("FDIV", a, b)
    // a tree of two quotients costs 20, the other one of two sums 16; but both roots need the quotient
    const left = node("ADD", shared, c)
    const right = node("ADD", c, shared)
    const other = node("ADD", node("ADD", a, c), b)
    union(right, other)
    const price = costOf({ ADD: 8, FDIV: 10 })
    const trees = extract(Cost, EqCost)(graph, price)
    expect(trees.get(graph.find(right))).toBe(16)
    expect(cheapest(graph, [left, right], trees, { costOf: price }).cost).toBe(26)
    expect(cheapest(graph, [right], trees, { costOf: price }).cost).toBe(16)
  })
})
