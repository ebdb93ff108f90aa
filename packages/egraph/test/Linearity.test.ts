import * as DType from "@tg/core-uop/DType"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Analysis from "@tg/egraph/Analysis"
import { linearity } from "@tg/egraph/Linearity"
import { graphOf } from "@tg/egraph/Optimise"
import { usual } from "@tg/egraph/rules/index"
import { saturate } from "@tg/egraph/Saturate"
import { writer } from "@tg/egraph/Write"
import * as Nn from "@tg/tensor/Nn"
import { param, type Tensor } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { sample, valuesOf } from "./support/programs.ts"

describe("in which leaves a value is linear", () => {
  const arena = new Arena()
  const tensor = (slot: number, shape: ReadonlyArray<number>) => param(arena, slot, { shape, dtype: DType.f32 })
  const [x, w, v] = [tensor(0, [2, 3]), tensor(1, [4, 3]), tensor(2, [4, 3])]
  const linearIn = (y: Tensor): ReadonlyArray<Tensor> => {
    const { graph, ids } = graphOf([y.node], () => "activation")
    const { linear } = Analysis.known(graph, linearity).get(graph.find(ids[0]!))!
    return [x, w, v].filter(({ node }) => linear.has(node))
  }

  it("products are in each operand, sums in what is in all terms", () => {
    expect(linearIn(Nn.linear(x, w))).toEqual([x, w])
    expect(linearIn(Nn.linear(x, w).add(Nn.linear(x, v)))).toEqual([x])
    expect(linearIn(Nn.linear(x, w).contiguous())).toEqual([x, w])
    expect(linearIn(Nn.cat([w, v], 0))).toEqual([])
    expect(linearIn(Nn.cat([w, w.mul(2)], 0))).toEqual([w])
  })

  it("not squares, quotients by it, powers, or what is added to a constant", () => {
    expect(linearIn(x.mul(x))).toEqual([])
    expect(linearIn(w.div(v))).toEqual([w])
    expect(linearIn(Nn.linear(x.exp2(), w))).toEqual([w])
    expect(linearIn(x.add(1))).toEqual([])
  })

  it("the law: twice the leaf is twice the value, of all classes of random programs, saturated", () => {
    let [count, more] = [0, 0]
    for (let seed = 1; seed <= 120; seed++) {
      const { contents, residency, root } = sample(seed)
      const { graph } = graphOf([root], residency)
      const written = writer(
        graph,
        new Map(graph.classes().map((cls) => [cls, graph.members(cls)[0]!.node])),
        root.arena
      )
      const before = Analysis.known(graph, linearity)
      const programs = [...before.keys()].map((id) => ({ id, uop: written.term(id) }))
      saturate(graph, usual, { bounds: { nodes: 500, rounds: 3, millis: 60_000 }, now: () => 0 })
      const after = Analysis.known(graph, linearity)
      const buffers = contents(-1)
      const twice = (leaf: UOp) =>
        new Map([...buffers].map(([at, data]) => [at, at === leaf ? data.map((y) => 2 * y) : data]))
      for (const { id, uop } of programs) {
        const { linear } = after.get(graph.find(id))!
        more += linear.size - before.get(id)!.linear.size
        for (const leaf of linear) {
          if (!buffers.has(leaf)) continue
          count++
          const [one] = valuesOf([uop], buffers, true)
          const [two] = valuesOf([uop], twice(leaf), true)
          const most = Math.max(1e-30, ...one!.map(Math.abs))
          const isTwice = one!.every((y, i) => !Number.isFinite(y) || Math.abs(two![i]! - 2 * y) <= 1e-9 * most)
          expect({ seed, isTwice }).toEqual({ seed, isTwice: true })
        }
      }
    }
    expect(count).toBeGreaterThan(500)
    // forms that the rules find show what the one that was written does not
    expect(more).toBeGreaterThan(0)
  })
})
