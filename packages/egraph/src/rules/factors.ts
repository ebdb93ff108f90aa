/** Factors of products of bytes, in front of the rounding or behind the product: routing weights. */
import { Tensor } from "@tg/tensor/Tensor"
import * as Contraction from "../Contraction.ts"
import { type Contract, contract } from "../ENode.ts"
import type { TensorGraph } from "../Facts.ts"
import { blockSumsOf, inPlaceIn, type Rounded, roundedIn } from "../Rounded.ts"
import { membersOf, rule } from "../Rule.ts"
import { contraction as written } from "../Write.ts"

/** For each axis of what is rounded the indices of the contraction that run over it; none where the product does not. */
const indicesOfValue = (c: Contraction.Contraction, at: number, { axes }: Rounded): Contraction.Access =>
  axes.map((axis) => axis === undefined ? [] : c.operands[at]![axis]!)

/** Whether a factor reads whole axes of what is rounded, and nothing else. */
const scales = (factor: ReadonlyArray<Contraction.Index>, value: Contraction.Access): boolean =>
  factor.every((i) => value.some((axis) => axis.includes(i))) &&
  value.every((axis) => axis.every((i) => factor.includes(i)) || !axis.some((i) => factor.includes(i)))

/** A factor beside what it multiplies: an axis for each axis of that, of size 1 where it is the same along it. */
const beside = (
  { operands, sizes }: Contraction.Contraction,
  at: number,
  { factor, value, whole }: { readonly factor: Tensor; readonly value: Contraction.Access; readonly whole: Tensor }
): Tensor => {
  const own = operands[at]!.flat()
  const order = value.flat().filter((i) => own.includes(i))
  return factor.reshape(own.map((i) => sizes[i]!)).permute(order.map((i) => own.indexOf(i)))
    .reshape(value.map((axis, k) => axis.length > 0 && own.includes(axis[0]!) ? whole.dim(k) : 1))
}

/** The operands of a contraction that may scale what one of them, a product of bytes, rounds. */
const factorsOf = (
  node: Contract,
  value: Contraction.Access,
  isMovable: (operand: number) => boolean
): ReadonlyArray<number> =>
  [...node.args.keys()].filter((i) => isMovable(i) && scales(node.contraction.operands[i]!.flat(), value))

/**
 * A block's scale takes the factor, its integers stay: but for a value in the middle between two of them, and for blocks of less than
 * 2^-113, which are rounded to zeros.
 */
export const scaleRounded = rule(
  "scale-rounded",
  "contract",
  { equation: "sum_e a[e] (sum_k round(x)[e, k] w[e, k]) = sum_e (sum_k round(a x)[e, k] w[e, k])", bound: 2 ** -7 },
  function*({ graph, node }) {
    const { args, contraction, dtype, origin } = node
    if (origin === undefined) return
    for (const [at, hole] of origin.holes.entries()) {
      const rounded = args.length > 1 ? roundedIn(hole) : undefined
      if (rounded === undefined) continue
      const value = indicesOfValue(contraction, at, rounded)
      const numbers = [...args.keys()].filter((i) => graph.facts(args[i]!).constant !== undefined)
      const factors = factorsOf(node, value, (i) => i !== at && !numbers.includes(i))
      if (factors.length === 0) continue
      // numbers go with the first factor
      const number = numbers.reduce((all, i) => all * graph.facts(args[i]!).constant!, 1)
      const scaled = factors.reduce((x, i, k) => {
        const factor = new Tensor(origin.holes[i]!)
        const own = k === 0 && number !== 1 ? factor.mul(number) : factor
        return x.mul(beside(contraction, i, { factor: own, value, whole: x }))
      }, rounded.value)
      const others = [...args.keys()].filter((i) => i !== at && !factors.includes(i) && !numbers.includes(i))
      const { operands, output, sizes } = contraction
      const form = Contraction.normalise({ sizes, operands: [...others, at].map((i) => operands[i]!), output })
      const product = { kind: "program", uop: rounded.of(scaled).node } as const
      yield { from: node, to: contract(form, dtype, [...others.map((i) => args[i]!), product]) }
    }
  }
)

/** What a workgroup rounds for itself, as a product of numbers and other values. */
const factored = function*(graph: TensorGraph, { origin: own }: Contract) {
  const rounded = own && inPlaceIn(own.uop)
  if (rounded === undefined) return
  for (const { node } of membersOf(graph, graph.read(rounded.value.node), "contract")) {
    const { args, contraction: { operands }, origin } = node
    if (origin === undefined) continue
    const isNumber = (i: number): boolean =>
      operands[i]!.flat().length === 0 && graph.facts(args[i]!).constant === undefined
    const numbers = [...args.keys()].filter(isNumber)
    const others = [...args.keys()].filter((i) => !isNumber(i))
    if (numbers.length > 0 && others.length > 0) {
      yield { rounded, contraction: node.contraction, numbers, others, holes: origin.holes }
    }
  }
}

/** The other direction, of a number: a workgroup that rounds for itself need not wait for that of a norm. */
export const scaleBehind = rule(
  "scale-behind",
  "contract",
  { equation: "sum_k round(a x)[k] w[k] = a sum_k round(x)[k] w[k]", bound: 2 ** -7, isSettled: true },
  function*({ graph, node }) {
    for (const { contraction, holes, numbers, others, rounded } of factored(graph, node)) {
      const { operands, output, sizes } = contraction
      const form = Contraction.normalise({ sizes, operands: others.map((i) => operands[i]!), output })
      const product = rounded.of(written(form, others.map((i) => new Tensor(holes[i]!))))
      const behind = numbers.reduce((y, i) => y.mul(new Tensor(holes[i]!).reshape(y.shape.map(() => 1))), product)
      yield { from: node, to: { kind: "program", uop: behind.node } }
    }
  }
)

/** What such a number adds up is added up block by block, beside the quants. */
export const sumBlocks = rule(
  "sum-blocks",
  "contract",
  { equation: "sum_k x[k]^2 = sum_b sum_i x[32 b + i]^2, where x is rounded", bound: 2 ** -18, isSettled: true },
  function*({ graph, node }) {
    for (const { holes, numbers, rounded } of factored(graph, node)) {
      for (const [sum, uop] of numbers.flatMap((i) => blockSumsOf(rounded.value, holes[i]!))) {
        yield { from: graph.nodeOf(graph.read(sum)), to: { kind: "program", uop } }
      }
    }
  }
)
