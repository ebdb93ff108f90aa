/** Factors and sums of a block, wherever they stand: forms that people write by hand are found equal. */
import { h200 } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { toposort } from "@tg/core-uop/UOp"
import * as Contraction from "@tg/egraph/Contraction"
import { choose, explore } from "@tg/egraph/Optimise"
import { membersOf } from "@tg/egraph/Rule"
import { all, ofBodies, usual } from "@tg/egraph/rules/index"
import * as Nn from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { Storage } from "./support/equations.ts"

const sizes = { tokens: 1, width: 256, rows: 512, experts: 4 }

/** Whether the usual rules make two forms equal. */
const areEqual = (build: (storage: Storage) => readonly [Tensor, Tensor]): boolean => {
  const storage = new Storage()
  const roots = build(storage).map(({ node }) => node)
  const { graph, ids } = explore(roots, { residency: storage.residency, rules: usual })
  return graph.areEqual(ids[0]!, ids[1]!)
}

describe("found equal", () => {
  const { experts, rows, tokens, width } = sizes

  it("the factor of a norm in front of a product and behind it", () => {
    expect(areEqual((storage) => {
      const x = storage.tensor("activation", [tokens, width], "x")
      const gain = storage.tensor("weight", [width], "gain")
      const w = storage.weight(rows, width, "w")
      const factor = Nn.rmsScale(x, 1e-5)
      return [Nn.linear(x.mul(factor).mul(gain), w), Nn.linear(x.mul(gain), w).mul(factor)]
    })).toBe(true)
  })

  it("the scale of scores at the query and behind the product", () => {
    expect(areEqual((storage) => {
      const q = storage.tensor("activation", [tokens, width], "q")
      const k = storage.tensor("cache", [64, width], "k")
      return [Nn.linear(q, k).mul(0.0625), Nn.linear(q.mul(0.0625), k)]
    })).toBe(true)
  })

  it("weights of experts on their outputs and on what their last product reads, its sum over experts inside", () => {
    expect(areEqual((storage) => {
      const inner = storage.tensor("activation", [tokens, experts, width], "inner")
      const share = storage.tensor("activation", [tokens, experts], "share")
      const down = storage.weight(experts * rows, width, "down").reshape([experts, rows, width])
      const each = inner.unsqueeze(2).mul(down).sum(-1).mul(share.unsqueeze(-1)).sum(1)
      const together = inner.mul(share.unsqueeze(-1)).unsqueeze(2).mul(down).sum({ axis: [1, 3] })
      return [each, together]
    })).toBe(true)
  })

  it("not what differs: the factor of another value", () => {
    expect(areEqual((storage) => {
      const x = storage.tensor("activation", [tokens, width], "x")
      const y = storage.tensor("activation", [tokens, width], "y")
      const w = storage.weight(rows, width, "w")
      return [Nn.linear(x.mul(Nn.rmsScale(x, 1e-5)), w), Nn.linear(x, w).mul(Nn.rmsScale(y, 1e-5))]
    })).toBe(false)
  })

  it("two products of one value are parts of one product", () => {
    const storage = new Storage()
    const x = storage.tensor("activation", [tokens, width], "x")
    const roots = ["gate", "up"].map((label) => Nn.linear(x, storage.tensor("weight", [rows, width], label)).node)
    const { graph, ids } = explore(roots, { residency: storage.residency, rules: all })
    const parts = ids.map((id) => membersOf(graph, id, "slice").map(({ node }) => node))
    const [gate, up] = [parts[0]!.find(({ start }) => start === 0), parts[1]!.find(({ start }) => start === rows)]
    expect(graph.areEqual(gate!.args[0], up!.args[0])).toBe(true)
  })
})

it("weighs experts where the sum over them is inside of the product: one launch instead of two", () => {
  const { experts, rows, tokens, width } = sizes
  const storage = new Storage()
  const inner = storage.tensor("activation", [tokens, experts, width], "inner")
  const share = storage.tensor("activation", [tokens, experts], "share")
  const down = storage.weight(experts * rows, width, "down").reshape([experts, rows, width])
  const { node } = inner.unsqueeze(2).mul(down).sum(-1).mul(share.unsqueeze(-1)).sum(1)
  const explored = explore([node], { residency: storage.residency, rules: usual })
  const { choice, micros, writtenMicros } = choose(explored, { profile: h200, vars: {} })
  expect(micros).toBeLessThan(writtenMicros)
  const sums = [...choice!.values()].filter((own) =>
    own.kind === "contract" && Contraction.summed(own.contraction).length > 0
  )
  expect(sums).toHaveLength(1)
})

it("multiplies a factor with what it scales before both are multiplied with a weight", () => {
  const { experts, rows, tokens, width } = sizes
  const storage = new Storage()
  const inner = storage.tensor("activation", [tokens, experts, width], "inner")
  const down = storage.weight(experts * rows, width, "down").reshape([experts, rows, width])
  const share = storage.tensor("activation", [tokens, experts], "share")
  const { node } = inner.unsqueeze(2).mul(down).sum(-1).mul(share.unsqueeze(-1)).sum(1)
  const { roots } = choose(explore([node], { residency: storage.residency, rules: ofBodies }), {
    profile: h200,
    vars: {},
    hides: true
  })
  const products = toposort(roots[0]!).filter(({ op, src }) =>
    op === "MUL" && [inner, share].every((x) => src.some((s) => toposort(s).includes(x.node)))
  )
  expect(products.length).toBeGreaterThan(0)
  const first = toposort(products[0]!)
  expect([inner, share].every((x) => first.includes(x.node))).toBe(true)
  expect(first.filter(({ dtype }) => dtype === DType.u32)).toEqual([]) // no weights
})
