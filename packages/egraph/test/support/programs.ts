/** Random tensor programs, rich in what rules look for, and their values. */
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { Arena, slotOf, type UOp } from "@tg/core-uop/UOp"
import type { Residency } from "@tg/egraph/Analysis"
import * as Nn from "@tg/tensor/Nn"
import { param, type Tensor } from "@tg/tensor/Tensor"
import { type Random, random } from "./random.ts"

/** A program, and the contents of its storage. */
export interface Sample {
  readonly root: UOp
  readonly residency: (storage: UOp) => Residency
  /** From `least` to 1. */
  readonly contents: (least: number) => ReadonlyMap<UOp, Float32Array>
}

const dims = [1, 2, 3, 4, 6]
const places = ["weight", "cache", "activation"] as const

interface Leaf {
  readonly tensor: Tensor
  readonly node: UOp
  readonly shape: string
  readonly count: number
  readonly where: Residency
}

/** Makes values of given shapes out of parameters. */
const source = (rng: Random) => {
  const arena = new Arena()
  const made: Array<Leaf> = []
  const leaf = (shape: ReadonlyArray<number>, where?: Residency): Tensor => {
    // sometimes one that is there already: shared operands
    const old = made.filter((own) => own.shape === shape.join() && (where === undefined || own.where === where))
    if (old.length > 0 && rng.next() < 0.3) return rng.pick(old).tensor
    const x = param(arena, made.length, { shape, dtype: DType.f32 })
    made.push({
      tensor: x,
      node: x.node,
      shape: shape.join(),
      count: shape.reduce((a, b) => a * b, 1),
      where: where ?? rng.pick(places)
    })
    return x
  }
  return { leaf, made }
}

type Values = (shape: ReadonlyArray<number>, depth: number) => Tensor

/** Ways to make a value of a shape out of others, by what they are. */
const ways = (
  rng: Random,
  value: Values,
  weight: (shape: ReadonlyArray<number>) => Tensor
): ReadonlyArray<(shape: ReadonlyArray<number>, depth: number) => Tensor> => {
  const n = (): number => rng.pick(dims)
  const product = (x: Tensor, w: Tensor): Tensor => Nn.linear(x, w)
  return [
    // [.., n] = x [.., k] w [n, k]
    (shape, depth) => {
      const k = n()
      return product(value([...shape.slice(0, -1), k], depth), value([shape.at(-1)!, k], depth))
    },
    (shape, depth) => value(shape, depth).mul(value(shape, depth)),
    (shape, depth) => value(shape, depth).mul(value([...shape.slice(0, -1), 1], depth)),
    (shape, depth) => value(shape, depth).mul(rng.pick([1, 0.5, 3])).mul(0.25),
    (shape, depth) => value(shape, depth).add(value(shape, depth)),
    (shape, depth) => value(shape, depth).div(value([...shape.slice(0, -1), 1], depth).add(1)),
    (shape, depth) => value(shape, depth).exp2(),
    (shape, depth) => value([...shape, n()], depth).sum(-1),
    (shape, depth) => value([...shape, n()], depth).max(-1),
    (shape, depth) => value(shape.toReversed(), depth).permute(shape.map((_, i) => shape.length - 1 - i)),
    (shape, depth) => value([shape.reduce((a, b) => a * b, 1)], depth).reshape(shape),
    (shape, depth) => value([...shape.slice(0, -1), shape.at(-1)! + 2], depth).slice(-1, 1, shape.at(-1)!),
    (shape, depth) => Nn.cat([value(shape, depth), value(shape, depth)], 0).slice(0, shape[0]!, shape[0]!),
    // a x[..m] + b x[m..]
    (shape, depth) => {
      const [k, l] = [1 + n(), 1 + n()]
      const rows = value([shape.at(-1)!, k + l], depth)
      const lead = shape.slice(0, -1)
      return product(value([...lead, k], depth), rows.slice(1, 0, k))
        .add(product(value([...lead, l], depth), rows.slice(1, k, l)))
    },
    // [a | b] x
    (shape, depth) => {
      const [k, l] = [1 + n(), 1 + n()]
      const lead = shape.slice(0, -1)
      const joined = Nn.cat([value([...lead, k], depth), value([...lead, l], depth)], -1)
      return product(joined, value([shape.at(-1)!, k + l], depth))
    },
    // x[a..][b..]
    (shape, depth) =>
      value([shape[0]! + 4, ...shape.slice(1)], depth).slice(0, 1, shape[0]! + 2).slice(0, 2, shape[0]!),
    // A x + A y
    (shape, depth) => {
      const k = n()
      const w = value([shape.at(-1)!, k], depth)
      const x = (): Tensor => value([...shape.slice(0, -1), k], depth)
      return rng.next() < 0.5 ? product(x(), w).add(product(x(), w)) : product(x().add(x()), w)
    },
    // siblings: two products of one value
    (shape, depth) => {
      const k = 1 + n()
      const x = value([...shape.slice(0, -1), k], depth)
      const w = (rows: number): Tensor => weight([rows, k])
      return product(x, w(shape.at(-1)!)).mul(product(x, w(2)).sum({ axis: -1, keepDims: true }))
    },
    // part of a product
    (shape, depth) => {
      const k = n()
      const rows = shape.at(-1)! + 3
      return product(value([...shape.slice(0, -1), k], depth), value([rows, k], depth)).slice(-1, 2, shape.at(-1)!)
        .slice(-1, 0, shape.at(-1)!)
    },
    // part of what is stored
    (shape, depth) => value([shape[0]! + 1, ...shape.slice(1)], depth).contiguous().slice(0, 1, shape[0]!)
  ]
}

/** A program of some ten operations. */
export const sample = (seed: number): Sample => {
  const rng = random(seed)
  const { leaf, made } = source(rng)
  const value: Values = (shape, depth) =>
    depth === 0 || rng.next() < 0.1 ? leaf(shape) : rng.pick(all)(shape, depth - 1)
  const all = ways(rng, value, (shape) => leaf(shape, "weight"))
  const { node: root } = value([rng.pick(dims), rng.pick(dims)], 3)
  return {
    root,
    residency: (storage) => made[slotOf(storage)]!.where,
    contents: (least) =>
      new Map(
        made.map(({ count, node }) => [
          node,
          Float32Array.from({ length: count }, () => least + (1 - least) * rng.next())
        ])
      )
  }
}

/** The elements of nodes. */
export const valuesOf = (
  roots: ReadonlyArray<UOp>,
  buffers: ReadonlyMap<UOp, Float32Array | Float64Array>,
  float64: boolean
): ReadonlyArray<ReadonlyArray<number>> =>
  evaluate(roots, {
    buffers: float64 ? new Map([...buffers].map(([node, data]) => [node, Float64Array.from(data)])) : buffers,
    float64
  })
    .map((value) => Array.from(value!.data))

/** The largest difference, in parts of the largest value. */
export const difference = (a: ReadonlyArray<number>, b: ReadonlyArray<number>): number => {
  if (a.length !== b.length) return Infinity
  const largest = a.reduce((most, x) => Math.max(most, Math.abs(x)), 1e-30)
  return a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i]!)), 0) / largest
}
