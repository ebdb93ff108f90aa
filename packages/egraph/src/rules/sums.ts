/** Sums and quotients of tensors inside of contractions: distributivity. */
import * as Contraction from "../Contraction.ts"
import { type Contract, contract, type ENode, type Term } from "../ENode.ts"
import { shapeOf, type TensorGraph } from "../Facts.ts"
import { membersOf, reading, type Rewrite, rule } from "../Rule.ts"

const reordered = 2 ** -18

/** A(x + y) = Ax + Ay. */
export const distribute = rule(
  "distribute",
  "contract",
  { equation: "sum_k a[k] (x[k] + y[k]) = sum_k a[k] x[k] + sum_k a[k] y[k]", bound: reordered },
  function*({ graph, node }) {
    for (const [at, arg] of node.args.entries()) {
      for (const { id, node: sum } of membersOf(graph, arg, "pointwise")) {
        if (sum.op !== "ADD") continue
        const term = (x: number): Term =>
          contract(node.contraction, node.dtype, node.args.map((other, i) => i === at ? x : other))
        yield {
          from: reading(node, at, id),
          to: { kind: "pointwise", op: "ADD", args: [term(sum.args[0]), term(sum.args[1])] }
        }
      }
    }
  }
)

/** A contraction with one operand last, whatever the order of the others was. */
const withLast = ({ args, contraction }: Contract, at: number): Contraction.Contraction =>
  Contraction.reorder(contraction, [...[...args.keys()].filter((i) => i !== at), at])

/** Whether the arguments are the same but for one of each. */
const areOthersSame = (a: Contract, i: number, b: Contract, j: number): boolean => {
  for (let k = 0; k < a.args.length - 1; k++) {
    if (a.args[k < i ? k : k + 1] !== b.args[k < j ? k : k + 1]) return false
  }
  return true
}

/** Two contractions of the same form that differ in one operand, which stands last. */
const alike = function*(a: Contract, b: Contract) {
  if (a.args.length !== b.args.length) return
  for (const [i, x] of a.args.entries()) {
    for (const [j, y] of b.args.entries()) {
      if (!areOthersSame(a, i, b, j)) continue
      const form = withLast(a, i)
      if (Contraction.key(form) !== Contraction.key(withLast(b, j))) continue
      yield { form, others: a.args.filter((_, k) => k !== i), x, y }
    }
  }
}

/** Both terms of a sum, as contractions. */
const termsOf = function*(graph: TensorGraph, node: ENode & { readonly kind: "pointwise" }) {
  if (node.op !== "ADD") return
  for (const x of membersOf(graph, node.args[0], "contract")) {
    for (const y of membersOf(graph, node.args[1], "contract")) {
      yield { x: x.node, y: y.node, from: { ...node, args: [x.id, y.id] } as const }
    }
  }
}

/** Ax + Ay = A(x + y). */
export const factor = rule(
  "factor",
  "pointwise",
  { equation: "sum_k a[k] x[k] + sum_k a[k] y[k] = sum_k a[k] (x[k] + y[k])", bound: reordered },
  function*({ graph, node }) {
    for (const { from, x, y } of termsOf(graph, node)) {
      for (const pair of alike(x, y)) {
        const sum: Term = { kind: "pointwise", op: "ADD", args: [pair.x, pair.y] }
        yield { from, to: contract(pair.form, x.dtype, [...pair.others, sum]) }
      }
    }
  }
)

/** x / y = x (1 / y): the reciprocal of what is small is then moved like any factor. */
export const divide = rule(
  "divide",
  "pointwise",
  { equation: "x / y = x (1 / y)", bound: 2 ** -22 },
  function*({ graph, node }): Iterable<Rewrite> {
    if (node.op !== "FDIV" || graph.facts(node.args[0]).constant === 1) return
    const shape = shapeOf(graph, node.args[0])
    const dtype = graph.facts(node.args[0]).dtype!
    for (const divisor of divisors(graph, node.args[1])) {
      const own = shapeOf(graph, divisor.source)
      const one = contract(
        Contraction.expand(own.map(() => 1), own),
        dtype,
        [contract(Contraction.reshape([], own.map(() => 1))!, dtype, [{ kind: "constant", value: 1, dtype, args: [] }])]
      )
      const reciprocal: Term = { kind: "pointwise", op: "FDIV", args: [one, divisor.source] }
      const spread = contract(divisor.spread, dtype, [reciprocal])
      yield {
        from: { ...node, args: [node.args[0], divisor.id] },
        to: contract(Contraction.product(shape, 2), dtype, [node.args[0], spread])
      }
    }
  }
)

/** A divisor as it is, and as smaller ones that are only repeated. */
const divisors = function*(graph: TensorGraph, id: number) {
  const shape = shapeOf(graph, id)
  let isRepeated = false
  for (const { id: member, node } of membersOf(graph, id, "contract")) {
    if (node.args.length !== 1 || Contraction.isSum(node.contraction)) continue
    isRepeated = true
    yield { id: member, source: node.args[0]!, spread: node.contraction }
  }
  if (!isRepeated) yield { id, source: id, spread: Contraction.identity(shape) }
}
