import { h200, wasm } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Shape from "@tg/core-uop/Shape"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import type { Residency } from "@tg/egraph/Analysis"
import { choose, explore, graphOf } from "@tg/egraph/Optimise"
import { roundedIn } from "@tg/egraph/Rounded"
import { ofBodies, scaleRounded } from "@tg/egraph/rules/index"
import { writer } from "@tg/egraph/Write"
import * as Int8 from "@tg/tensor/Int8"
import { param, type Tensor } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { difference } from "./support/programs.ts"
import { type Random, random } from "./support/random.ts"

const storageIn = (arena: Arena, rng: Random) => {
  const buffers = new Map<UOp, Float32Array | Uint32Array>()
  const countOf = (shape: ReadonlyArray<number>): number => shape.reduce((a, b) => a * b, 1)
  const floats = (shape: ReadonlyArray<number>, value = () => 0.25 + 0.75 * rng.next()): Tensor => {
    const x = param(arena, buffers.size, { shape, dtype: DType.f32 })
    buffers.set(x.node, Float32Array.from({ length: countOf(shape) }, value))
    return x
  }
  const byte = (): number => 8 + Math.floor(rng.next() * 100)
  const words = (shape: ReadonlyArray<number>): Tensor => {
    const x = param(arena, buffers.size, { shape, dtype: DType.u32 })
    buffers.set(
      x.node,
      Uint32Array.from({ length: countOf(shape) }, () => byte() | byte() << 8 | byte() << 16 | byte() << 24)
    )
    return x
  }
  return { buffers, floats, words }
}

/** Products of experts with what was rounded, in one of some layouts, and behind them a factor of each. */
const sample = (seed: number) => {
  const rng = random(seed)
  const arena = new Arena()
  const { buffers, floats, words } = storageIn(arena, rng)
  const [tokens, experts, blocks] = [rng.pick([1, 2, 3]), rng.pick([1, 2, 4]), rng.pick([1, 2, 3])]
  const rows = rng.pick([1, 3, 4])
  const parts = rng.pick([1, 2] as const)
  const scale = floats([experts, rows, blocks, parts])
  const weights: Int8.Rows = {
    words: words([experts, rows, blocks, 2, 4]),
    scale,
    zero: rng.pick([0, 8]),
    minimum: rng.pick([undefined, scale.mul(0.5)])
  }
  // a view as well, of which another view is left in what rounds it
  const x = rng.pick([
    () => floats([tokens, experts, 32 * blocks]),
    () => floats([tokens, experts * 32 * blocks]).reshape([tokens, experts, 32 * blocks])
  ])()
  const records = Int8.quantise(x)
  const operand = rng.pick([
    () => records.contiguous(),
    () => records.permute([1, 2, 3, 0]).contiguous().permute([3, 0, 1, 2]),
    () => records.reshape([tokens, experts, blocks * Int8.recordWords]).contiguous().reshape(records.shape)
  ])()
  const y = Int8.contract(operand, weights)
  // negative ones and none, too
  const share = floats([tokens, experts], () => rng.pick([-1, 0, 1, 1]) * (0.1 + rng.next()))
  const each = rng.pick([
    () => y.mul(share.unsqueeze(-1)),
    () => y.mul(share.mul(rng.pick([1, 1.8])).unsqueeze(-1)),
    () => y.mul(share.slice(0, 0, 1).unsqueeze(-1)),
    () => y.mul(share.unsqueeze(-1)).mul(floats([experts]).unsqueeze(-1))
  ])()
  const root = rng.pick([() => each, () => each.sum(1), () => each.sum(1).permute([1, 0])])()
  const held = new Set(toposort(weights.words.node).concat(toposort(scale.node)))
  const residency = (storage: UOp): Residency => held.has(storage) ? "weight" : "activation"
  return { root, share, x, residency, buffers }
}

const seeds = Array.from({ length: 80 }, (_, i) => i + 1)
const valuesOf = (roots: ReadonlyArray<UOp>, buffers: ReadonlyMap<UOp, Float32Array | Uint32Array>) =>
  evaluate(roots, { buffers }).map((value) => Array.from(value!.data))

/** Whether records or quants of this factor are in a program. */
const isInside = (root: UOp, factor: Tensor): boolean =>
  toposort(root).some((node) => node.op === "DOT4I8" && toposort(node.src[0]!).includes(factor.node))

/** What the rule says of a program. */
const rewritesOf = (root: UOp, residency: (storage: UOp) => Residency) => {
  const { graph } = graphOf([root], residency)
  const written = writer(graph, new Map(graph.classes().map((cls) => [cls, graph.members(cls)[0]!.node])), root.arena)
  return graph.classes().flatMap((cls) =>
    graph.members(cls).flatMap(({ id, node }) => [...scaleRounded.rewrites(graph, id, node)])
  ).map(({ from, to }) => ({ from: written.node(from), to: written.term(to) }))
}

describe("a factor behind a product of bytes", () => {
  it("scales what is rounded, within its bound, in all layouts", () => {
    let count = 0
    for (const seed of seeds) {
      const { buffers, residency, root, share } = sample(seed)
      for (const { from, to } of rewritesOf(root.node, residency)) {
        count++
        expect(Shape.of(to)).toEqual(Shape.of(from))
        expect({ seed, was: isInside(from, share), is: isInside(to, share) }).toEqual({ seed, was: false, is: true })
        const [a, b] = valuesOf([from, to], buffers)
        expect({ seed, isWithin: difference(a!, b!) <= scaleRounded.bound }).toEqual({ seed, isWithin: true })
      }
    }
    expect(count).toBeGreaterThanOrEqual(seeds.length)
  })

  it("stays where it differs along what is summed, or along an axis that what is rounded has not", () => {
    const arena = new Arena()
    const { floats, words } = storageIn(arena, random(1))
    const weights: Int8.Rows = {
      words: words([4, 3, 2, 2, 4]),
      scale: floats([4, 3, 2, 1]),
      zero: 8,
      minimum: undefined
    }
    const x = floats([2, 64])
    const y = Int8.contract(Int8.quantise(x).unsqueeze(1).contiguous(), weights) // [2, 4, 3]
    const residency = (): Residency => "activation"
    const isMoved = (root: Tensor): boolean => rewritesOf(root.node, residency).length > 0
    expect(isMoved(y.mul(floats([3])))).toBe(false)
    expect(isMoved(y.mul(floats([4]).unsqueeze(-1)))).toBe(false)
    expect(isMoved(y.mul(2))).toBe(false)
    expect(isMoved(y.mul(floats([2]).reshape([2, 1, 1])))).toBe(true)
    const inPlace = Int8.contract(Int8.blocks(x.unsqueeze(1)), weights)
    expect(isMoved(inPlace.mul(floats([2]).reshape([2, 1, 1])))).toBe(false)
    expect(roundedIn(y.node)?.axes).toEqual([0, undefined])
  })
})

describe("the experts of a token", () => {
  it("are weighed in front of their last product: on a GPU, and on a CPU", () => {
    const arena = new Arena()
    const { floats, words } = storageIn(arena, random(2))
    const [experts, rows, blocks] = [4, 256, 8]
    const weights: Int8.Rows = {
      words: words([experts, rows, blocks, 2, 4]),
      scale: floats([experts, rows, blocks, 1]),
      zero: 8,
      minimum: undefined
    }
    const held = new Set([weights.words.node, weights.scale.node])
    const residency = (storage: UOp): Residency => held.has(storage) ? "weight" : "activation"
    const share = floats([1, experts])
    const inner = floats([1, experts, 32 * blocks])
    const each = Int8.contract(Int8.quantise(inner).contiguous(), weights)
    const root = each.mul(share.unsqueeze(-1)).sum(1).node
    for (const profile of [h200, wasm]) {
      const explored = explore([root], { residency, rules: ofBodies })
      const chosen = choose(explored, { profile, vars: {}, hides: true })
      expect(isInside(root, share)).toBe(false)
      expect(isInside(chosen.roots[0]!, share)).toBe(true)
    }
  })
})
