import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Shape from "@tg/core-uop/Shape"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import { cascadeAt } from "@tg/egraph/Cascade"
import { inPieces, law } from "@tg/egraph/Pieces"
import * as Nn from "@tg/tensor/Nn"
import { iota, param, type Tensor, variable } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { difference } from "./support/programs.ts"
import { random } from "./support/random.ts"

const size = 12

/** Cascades over the last axis of `x [.., S]` and the one before the last of `v [.., S, W]`. */
const cascades: Readonly<Record<string, (x: Tensor, v: Tensor) => Tensor>> = {
  "softmax and mix": (x, v) => Nn.softmax(x).unsqueeze(-1).mul(v).sum(-2),
  "weights behind the values": (x, v) => v.mul(Nn.softmax(x.mul(0.3)).unsqueeze(-1)).sum(-2),
  "a mix by other axes": (x, v) => Nn.softmax(x).unsqueeze(-2).mul(v.transpose()).sum(-1),
  "values on nested axes": (x, v) => {
    const [width, lead] = [Number(v.dim(-1)), x.shape.slice(0, -1)]
    const nested = v.reshape([...v.shape.slice(0, -1), width / 2, 2])
    return Nn.softmax(x).reshape([...x.shape, 1, 1]).mul(nested).sum(-3).reshape([...lead, width])
  },
  "a mask": (x, v) => {
    const seen = iota(x.arena, size).lt(7)
    return Nn.softmax(seen.where(x, -1e30)).unsqueeze(-1).mul(v).sum(-2)
  },
  "the sum of exponentials": (x) => x.sub(x.max({ axis: -1, keepDims: true })).exp().sum(-1),
  "exponentials times their arguments": (x) => {
    const e = x.sub(x.max({ axis: -1, keepDims: true })).exp()
    return e.div(e.sum({ axis: -1, keepDims: true })).mul(x).sum(-1)
  },
  "powers of two against the least": (x, v) => {
    const e = x.min({ axis: -1, keepDims: true }).sub(x).mul(2).exp2()
    return e.unsqueeze(-1).mul(v).sum(-2)
  },
  "a mix divided by a sum": (x, v) => {
    const shares = x.abs().div(x.abs().sum({ axis: -1, keepDims: true }))
    return shares.unsqueeze(-1).mul(v).sum(-2)
  },
  "negative temperature": (x, v) => {
    const e = x.min({ axis: -1, keepDims: true }).sub(x).neg().mul(-1).exp()
    return e.div(e.sum({ axis: -1, keepDims: true })).unsqueeze(-1).mul(v).sum(-2)
  }
}

/** The same on random values: as it is written, and in pieces. */
const sample = (build: (x: Tensor, v: Tensor) => Tensor, seed: number, piece: number) => {
  const rng = random(seed)
  const arena = new Arena()
  const lead = Array.from({ length: rng.below(3) }, () => rng.pick([1, 2, 3]))
  const made = new Map<UOp, Float32Array>()
  const leaf = (shape: ReadonlyArray<number>): Tensor => {
    const x = param(arena, made.size, { shape, dtype: DType.f32 })
    made.set(
      x.node,
      Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => 0.25 + 3 * rng.next())
    )
    return x
  }
  const { node } = build(leaf([...lead, size]), leaf([...lead, size, rng.pick([2, 4, 6])]))
  const reduce = toposort(node).findLast(({ op }) => op === "REDUCE")!
  const cascade = cascadeAt(reduce)
  const split = cascade && inPieces(cascade, { piece })
  return { reduce, split, made }
}

describe(`a cascade keeps its values in pieces: ${law.equation}`, () => {
  for (const [name, build] of Object.entries(cascades)) {
    it(name, () => {
      for (let seed = 1; seed <= 30; seed++) {
        const { made, reduce, split } = sample(build, seed, [2, 3, 4, 6][seed % 4]!)
        expect(split, `seed ${seed}`).toBeDefined()
        expect(Shape.print(Shape.of(split!))).toBe(Shape.print(Shape.of(reduce)))
        // what reads all positions at once is gone
        expect(toposort(split!)).not.toContain(reduce)
        const [a, b] = evaluate([reduce, split!], { buffers: made }).map((value) => Array.from(value!.data))
        expect(difference(a!, b!), `seed ${seed}`).toBeLessThanOrEqual(law.bound)
      }
    })
  }
})

describe("what is no cascade stays as it is", () => {
  const refused: Readonly<Record<string, (x: Tensor, v: Tensor) => Tensor>> = {
    // the terms of (x - mean)^2 of a piece say nothing of those of all
    "a variance": (x) => {
      const apart = x.sub(x.mean({ axis: -1, keepDims: true }))
      return apart.mul(apart).sum(-1)
    },
    "a sine of what is left of the largest": (x) => x.sub(x.max({ axis: -1, keepDims: true })).sin().sum(-1),
    "a sum alone": (x) => x.sum(-1)
  }
  for (const [name, build] of Object.entries(refused)) {
    it(name, () => expect(sample(build, 1, 4).split).toBeUndefined())
  }

  it("pieces that do not divide the axis", () => {
    expect(sample(cascades["softmax and mix"]!, 1, 5).split).toBeUndefined()
  })
})

it("splits an axis of symbolic length where it says that it is whole pieces", () => {
  const arena = new Arena()
  const n = variable(arena, "n", 1, 8)
  const x = param(arena, 0, { shape: [3, n.mul(4).node], dtype: DType.f32 })
  const v = param(arena, 1, { shape: [n.mul(4).node, 2], dtype: DType.f32 })
  const { node } = cascades["softmax and mix"]!(x, v)
  const split = inPieces(cascadeAt(node)!, { piece: 2 })!
  const of = (count: number) => Float32Array.from({ length: count }, (_, i) => Math.sin(i * 1.7))
  for (const count of [1, 3, 8]) {
    const buffers = new Map([[x.node, of(3 * 4 * 8)], [v.node, of(4 * 2 * 8)]])
    const [a, b] = evaluate([node, split], { buffers, vars: { n: count } }).map((value) => Array.from(value!.data))
    expect(a).toHaveLength(6)
    expect(difference(a!, b!)).toBeLessThanOrEqual(law.bound)
  }
})

it("splits an axis of any symbolic length where what is read goes on, and counts nothing behind it", () => {
  const arena = new Arena()
  const n = variable(arena, "n", 1, 16)
  const cache = (slot: number, shape: ReadonlyArray<number>) => param(arena, slot, { shape, dtype: DType.f32 })
  const [x, k, v] = [cache(0, [3, 5]), cache(1, [16, 5]), cache(2, [16, 2])]
  const scores = Nn.linear(x, k.slice(0, 0, n))
  const masked = iota(arena, n).ne(2).where(scores, -1e30)
  const { node } = cascades["softmax and mix"]!(masked, v.slice(0, 0, n))
  const split = inPieces(cascadeAt(node)!, { piece: 4 })!
  const of = (count: number) => Float32Array.from({ length: count }, (_, i) => Math.sin(i * 1.7))
  for (const count of [1, 4, 7, 13, 16]) {
    const buffers = new Map([[x.node, of(15)], [k.node, of(80)], [v.node, of(32)]])
    // what is behind must not be seen, however large it is
    buffers.get(k.node)!.fill(1e30, count * 5)
    buffers.get(v.node)!.fill(Infinity, count * 2)
    const [a, b] = evaluate([node, split], { buffers, vars: { n: count } }).map((value) => Array.from(value!.data))
    expect(difference(a!, b!), `${count}`).toBeLessThanOrEqual(law.bound)
  }
  // room for no whole pieces
  expect(inPieces(cascadeAt(node)!, { piece: 5 })).toBeUndefined()
})

it("finds the state of the online softmax: of each piece its mix, its maximum and its sum, as one record", () => {
  const { split } = sample(cascades["softmax and mix"]!, 4, 4)
  const records = toposort(split!).filter(({ op }) => op === "CONTIGUOUS")
  expect(records).toHaveLength(1)
  expect(Shape.of(records[0]!).slice(-2)).toEqual([3, 8])
})
