/** Products with weights that are bytes: what is multiplied with them may be rounded to bytes, too. */
import * as Int8 from "@tg/tensor/Int8"
import { Tensor } from "@tg/tensor/Tensor"
import * as Contraction from "../Contraction.ts"
import type { ClassId } from "../ENode.ts"
import type { TensorGraph } from "../Facts.ts"
import { membersOf, rule } from "../Rule.ts"

/** A weight as `Int8.values` writes it: whoever wrote it so allows to round. */
const rowsIn = (graph: TensorGraph, id: ClassId): ClassId | undefined =>
  membersOf(graph, id, "other").find(({ node }) =>
    node.args.length === 0 && Int8.rowsOf(new Tensor(node.origin.uop)) !== undefined
  )?.id

/** Whether the rows of the second operand are summed over, each value of them once, and nothing else is. */
const isOfRows = ({ operands: [value, weights], ...c }: Contraction.Contraction): boolean => {
  const row = weights!.slice(-Int8.rowRank).flat()
  const rows = weights!.slice(0, -Int8.rowRank)
  const sums = Contraction.summed({ operands: [value!, weights!], ...c })
  const read = new Set(value!.flat())
  return sums.length === row.length && row.every((i) => sums.includes(i) && read.has(i)) &&
    new Set(value!.flat()).size === value!.flat().length &&
    rows.every((axis) => axis.length <= 1) && rows.length > 0 && rows.at(-1)!.every((i) => !read.has(i))
}

/** The value is rounded in blocks of 32: a value by 1/254 of the largest one of its block. */
export const round = rule(
  "round",
  "contract",
  { equation: "sum_k x[k] w[k] = sum_k round(x)[k] w[k], where the policy is to round", bound: 2 ** -7 },
  function*({ graph, node }) {
    if (node.args.length !== 2) return
    for (const at of [0, 1]) {
      const weights = rowsIn(graph, node.args[at]!)
      if (weights === undefined) continue
      const contraction = at === 1 ? node.contraction : Contraction.reorder(node.contraction, [1, 0])
      if (!isOfRows(contraction)) continue
      yield { from: node, to: { kind: "rounded", contraction, dtype: node.dtype, args: [node.args[1 - at]!, weights] } }
    }
  }
)
