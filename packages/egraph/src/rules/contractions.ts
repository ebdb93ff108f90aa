/** Products and sums: associativity, in both directions, is all that moves factors, scales and sums about. */
import * as Contraction from "../Contraction.ts"
import { type Contract, contract } from "../ENode.ts"
import type { TensorGraph } from "../Facts.ts"
import { membersOf, reading, type Rewrite, rule } from "../Rule.ts"

/** Operands of one contraction: with more, ways to split it are many and none of them is new. */
const mostOperands = 6

/** Rounding: another order of sums of up to some hundred terms. */
const reordered = 2 ** -18

/** A(Bx) = sum of A B x: a contraction in a contraction is one of all operands. */
export const nest = rule(
  "nest",
  "contract",
  { equation: "sum_n a[n] (sum_k b[n, k] c[k]) = sum_nk a[n] b[n, k] c[k]", bound: reordered },
  function*({ graph, node }) {
    for (const [at, arg] of node.args.entries()) {
      for (const { id, node: inner } of membersOf(graph, arg, "contract")) {
        if (node.args.length + inner.args.length - 1 > mostOperands || inner.args.includes(graph.find(arg))) continue
        const joined = Contraction.compose(node.contraction, at, inner.contraction)
        if (joined === undefined) continue
        const args = [...node.args.filter((_, i) => i !== at), ...inner.args]
        yield { from: reading(node, at, id), to: contract(joined, node.dtype, args) }
      }
    }
  }
)

/** Sets of operands that may be worth contracting first: one, two, or all but the numbers, which multiply the result. */
const candidates = function*(c: Contraction.Contraction): Iterable<ReadonlyArray<number>> {
  const reads = c.operands.map((_, i) => Contraction.indicesOfOperand(c, i))
  const tensors = [...reads.keys()].filter((i) => reads[i]!.size > 0)
  if (tensors.length > 0 && tensors.length < reads.length) yield tensors
  if (reads.length === 1) return
  for (const i of tensors) {
    yield [i]
    if (reads.length > 2) yield* tensors.filter((j) => j > i).map((j) => [i, j])
  }
}

/**
 * Whether it gains anything to have a result of its own: a sum is done, or one operand scales another one. What is left are
 * outer products, larger than what they are made of.
 */
const isWorthwhile = (
  c: Contraction.Contraction,
  chosen: ReadonlyArray<number>,
  inner: Contraction.Contraction
): boolean => {
  const isSum = Contraction.isSum(inner)
  if (chosen.length === 1 || isSum) return isSum
  const free = inner.sizes.length
  return chosen.length > 2 || chosen.some((i) => Contraction.indicesOfOperand(c, i).size === free)
}

const splitOff = (node: Contract, chosen: ReadonlyArray<number>): Rewrite | undefined => {
  const { inner, outer } = Contraction.contractFirst(node.contraction, chosen)
  if (chosen.length < node.args.length - numbersIn(node) && !isWorthwhile(node.contraction, chosen, inner)) {
    return undefined
  }
  const first = contract(inner, node.dtype, chosen.map((i) => node.args[i]!))
  const others = node.args.filter((_, i) => !chosen.includes(i))
  return { from: node, to: contract(outer, node.dtype, [...others, first]) }
}

/** Every way to contract some operands first. */
const splits = function*(
  node: Contract,
  isWanted: (chosen: ReadonlyArray<number>) => boolean = () => true
): Iterable<Rewrite> {
  for (const chosen of candidates(node.contraction)) {
    if (!isWanted(chosen)) continue
    const rewrite = splitOff(node, chosen)
    if (rewrite !== undefined) yield rewrite
  }
}

/** The same, where a sum is done: what only scales is computed wherever it is read. */
export const associateSums = rule(
  "associate-sums",
  "contract",
  {
    equation: "sum_nk a[n] b[n, k] c[k] = sum_n a[n] (sum_k b[n, k] c[k])",
    bound: reordered
  },
  function*({ node }) {
    if (!Contraction.isSum(node.contraction)) return
    yield* splits(node, (chosen) => Contraction.isSumOf(node.contraction, chosen))
  }
)

const numbersIn = ({ args, contraction }: Contract): number =>
  args.filter((_, i) => Contraction.indicesOfOperand(contraction, i).size === 0).length

/** ABx = A(Bx) = (AB)x: some operands first. */
export const associate = rule(
  "associate",
  "contract",
  {
    equation: "sum_nk a[n] b[n, k] c[k] = sum_n a[n] (sum_k b[n, k] c[k]) = sum_k (sum_n a[n] b[n, k]) c[k]",
    bound: reordered
  },
  ({ node }) => splits(node)
)

const constantOf = (graph: TensorGraph, id: number): number | undefined => graph.facts(id).constant

/** Factors that are the same number everywhere need no memory: they are one number. */
export const constants = rule(
  "constants",
  "contract",
  { equation: "2 (3 x) = 6 x, 1 x = x", bound: 2 ** -22 },
  function*({ graph, node }) {
    const numbers = [...node.args.keys()].filter((i) =>
      constantOf(graph, node.args[i]!) !== undefined && Contraction.indicesOfOperand(node.contraction, i).size === 0
    )
    if (numbers.length === 0 || numbers.length === node.args.length) return
    const value = numbers.reduce((x, i) => x * constantOf(graph, node.args[i]!)!, 1)
    if (numbers.length === 1 && value !== 1) return
    const { operands, output, sizes } = node.contraction
    const kept = [...node.args.keys()].filter((i) => !numbers.includes(i))
    const accesses = [...kept.map((i) => operands[i]!), ...value === 1 ? [] : [[]]]
    const number = { kind: "constant", value, dtype: node.dtype, args: [] } as const
    yield {
      from: node,
      to: contract(Contraction.normalise({ sizes, operands: accesses, output }), node.dtype, [
        ...kept.map((i) => node.args[i]!),
        ...value === 1 ? [] : [number]
      ])
    }
  }
)
