import { h200 } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Shape from "@tg/core-uop/Shape"
import { Arena, reduceArg, toposort, type UOp } from "@tg/core-uop/UOp"
import type { Residency } from "@tg/egraph/Analysis"
import { choose, explore, graphOf } from "@tg/egraph/Optimise"
import { waitsOf } from "@tg/egraph/Rounded"
import type { Rule } from "@tg/egraph/Rule"
import { ofBodies, scaleBehind, sumBlocks } from "@tg/egraph/rules/index"
import { writer } from "@tg/egraph/Write"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import { param, type Tensor } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { difference } from "./support/programs.ts"
import { random } from "./support/random.ts"

/** Products that round for themselves, of norms as papers write them: x / sqrt(mean(x^2) + eps) gain. */
const sample = (seed: number) => {
  const rng = random(seed)
  const arena = new Arena()
  const buffers = new Map<UOp, Float32Array | Uint32Array>()
  const held = new Set<UOp>()
  const byte = (): number => 8 + Math.floor(rng.next() * 100)
  const tensor = (shape: ReadonlyArray<number>, dtype: DType.DType, residency: Residency): Tensor => {
    const x = param(arena, buffers.size, { shape, dtype })
    const count = shape.reduce((a, b) => a * b, 1)
    const scale = rng.pick([1, 2 ** -20, 2 ** 20])
    const word = () => byte() | byte() << 8 | byte() << 16 | byte() << 24
    buffers.set(
      x.node,
      dtype === DType.u32
        ? Uint32Array.from({ length: count }, word)
        : Float32Array.from({ length: count }, () => scale * (0.25 + 0.75 * rng.next()))
    )
    if (residency === "weight") held.add(x.node)
    return x
  }
  const blocks = rng.pick([2, 3, 8])
  const width = 32 * blocks
  const parts = rng.pick([1, 2] as const)
  const weight = (rows: number): Int8.Rows => {
    const scale = tensor([rows, blocks, parts], DType.f32, "weight")
    return {
      words: tensor([rows, blocks, 2, 4], DType.u32, "weight"),
      scale,
      zero: rng.pick([0, 8]),
      minimum: rng.pick([undefined, scale.mul(0.5)])
    }
  }
  const stream = tensor([1, width], DType.f32, "activation")
  const x = rng.pick([() => stream, () => stream.add(1), () => stream.reshape([width]).mul(2).reshape([1, width])])()
  const gain = tensor([width], DType.f32, "weight")
  const factor = Nn.rmsScale(x, 1e-5)
  const normed = rng.pick([
    () => x.mul(factor).mul(gain),
    () => Nn.rmsNorm(x, gain, 1e-5),
    () => x.mul(gain).mul(factor),
    () => x.mul(factor).mul(factor.neg()).mul(gain)
  ])()
  const int8 = Int8.blocks(normed)
  const roots = [3, 5].map((rows) => Int8.contract(int8, weight(rows)))
  const residency = (storage: UOp): Residency => held.has(storage) ? "weight" : "activation"
  return { roots, factor, residency, buffers }
}

const seeds = Array.from({ length: 60 }, (_, i) => i + 1)
const valuesOf = (roots: ReadonlyArray<UOp>, buffers: ReadonlyMap<UOp, Float32Array | Uint32Array>) =>
  evaluate(roots, { buffers }).map((value) => Array.from(value!.data))

/** Both sides of whatever a rule says of programs. */
const rewritesOf = (rule: Rule, roots: ReadonlyArray<UOp>, residency: (storage: UOp) => Residency) => {
  const { graph } = graphOf(roots, residency)
  const found = graph.classes().flatMap((cls) =>
    graph.members(cls).flatMap(({ id, node }) => [...rule.rewrites(graph, id, node)])
  )
  // with what rules read
  const choice = new Map(graph.classes().map((cls) => [cls, graph.members(cls)[0]!.node]))
  const { node, term } = writer(graph, choice, roots[0]!.arena)
  return found.map(({ from, to }) => ({ from: node(from), to: term(to) }))
}

const reductionsOf = (root: UOp): ReadonlyArray<UOp> =>
  toposort(root).filter(({ dtype, op }) => op === "REDUCE" && DType.isFloat(dtype))

/** Reductions that workgroups wait for before they round. */
const waitsIn = (roots: ReadonlyArray<UOp>): number => toposort(...roots).reduce((n, node) => n + waitsOf(node), 0)

describe("the number of a norm that each workgroup rounds for itself", () => {
  for (const rule of [scaleBehind, sumBlocks]) {
    it(`${rule.name}: ${rule.equation}`, () => {
      let count = 0
      for (const seed of seeds) {
        const { buffers, residency, roots } = sample(seed)
        for (const { from, to } of rewritesOf(rule, roots.map(({ node }) => node), residency)) {
          count++
          expect(Shape.of(to)).toEqual(Shape.of(from))
          const [a, b] = valuesOf([from, to], buffers)
          expect({ seed, isWithin: difference(a!, b!) <= rule.bound }).toEqual({ seed, isWithin: true })
        }
      }
      expect(count).toBeGreaterThanOrEqual(2 * seeds.length)
    })
  }

  it("is found behind the products, its sum in blocks, by the search alone", () => {
    for (const seed of seeds.slice(0, 20)) {
      const { buffers, residency, roots } = sample(seed)
      const nodes = roots.map(({ node }) => node)
      const explored = explore(nodes, { residency, rules: ofBodies })
      const chosen = choose(explored, { profile: h200, vars: {}, hides: true })
      expect(waitsIn(nodes)).toBe(1)
      for (const form of [chosen, chosen.settled]) {
        expect(waitsIn(form.roots)).toBe(0)
        const sums = form.roots.flatMap(reductionsOf).filter((sum) =>
          reduceArg(sum).op === "ADD" && Shape.of(sum.src[0]!).at(-1) === 32
        )
        expect(sums.length).toBeGreaterThan(0)
        for (const [i, after] of valuesOf(form.roots, buffers).entries()) {
          expect(difference(valuesOf(nodes, buffers)[i]!, after)).toBeLessThanOrEqual(scaleBehind.bound)
        }
      }
    }
  })

  it("stays where a launch rounds, where nothing waits for it, and where it is none", () => {
    const arena = new Arena()
    const tensor = (slot: number, shape: ReadonlyArray<number>, dtype = DType.f32) =>
      param(arena, slot, { shape, dtype })
    const [x, gain, share] = [tensor(0, [1, 64]), tensor(1, [64]), tensor(2, [1, 64])]
    const rows: Int8.Rows = {
      words: tensor(3, [3, 2, 2, 4], DType.u32),
      scale: tensor(4, [3, 2, 1]),
      zero: 8,
      minimum: undefined
    }
    const normed = Nn.rmsNorm(x, gain, 1e-5)
    const isMoved = (y: Tensor): boolean => rewritesOf(scaleBehind, [y.node], () => "activation").length > 0
    expect(isMoved(Int8.contract(Int8.quantise(normed).contiguous(), rows))).toBe(false)
    expect(isMoved(Int8.contract(Int8.blocks(x.mul(gain).mul(share)), rows))).toBe(false)
    expect(isMoved(Int8.contract(Int8.blocks(x.mul(0.5)), rows))).toBe(false)
    expect(isMoved(Int8.contract(Int8.blocks(normed), rows))).toBe(true)
    // a number that is there costs nothing in front
    const there = Int8.contract(Int8.blocks(x.mul(tensor(5, [1, 1]))), rows).node
    const explored = explore([there], { residency: () => "activation", rules: ofBodies })
    expect(choose(explored, { profile: h200, vars: {}, hides: true }).roots).toEqual([there])
  })
})
