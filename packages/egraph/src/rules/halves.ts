/** Halves of a cache that many tokens read: converted once for all of them, or by each reader again. */
import * as Analysis from "../Analysis.ts"
import * as Contraction from "../Contraction.ts"
import { type ClassId, type Contract, contract, type Term } from "../ENode.ts"
import type { TensorGraph } from "../Facts.ts"
import { isTiles } from "../Layout.ts"
import { membersOf, rule } from "../Rule.ts"

/** Whether a value is converted from halves at each step. */
const areHalves = (graph: TensorGraph, id: ClassId): boolean =>
  !Analysis.isStatic(graph.facts(id).residency) &&
  membersOf(graph, id, "other").some(({ node }) => node.origin.uop.op === "HALF_TO_FLOAT")

/** Views and parts that are looked through: a part of rows, one of a head. */
const mostViews = 2

/** Halves, or a view or part of them, as floats that a launch stores. */
const storedHalves = (graph: TensorGraph, id: ClassId, views = mostViews): Term | undefined => {
  if (areHalves(graph, id)) return { kind: "stored", layout: "rows", args: [id] }
  if (views === 0) return undefined
  const through = (inner: ClassId) => storedHalves(graph, inner, views - 1)
  for (const { node: { args: [source], contraction, dtype } } of membersOf(graph, id, "contract")) {
    const stored = Contraction.isView(contraction) ? through(source!) : undefined
    if (stored !== undefined) return contract(contraction, dtype, [stored])
  }
  for (const { node: { args: [source], axis, size, start } } of membersOf(graph, id, "slice")) {
    const stored = through(source)
    if (stored !== undefined) return { kind: "slice", axis, start, size, args: [stored] }
  }
  return undefined
}

/** The operands of a sum that whole tiles of tokens read as halves, which are none of them theirs, as they would be stored. */
export const halvesOfTiles = (graph: TensorGraph, { args, contraction }: Contract): ReadonlyMap<number, Term> => {
  const { sizes } = contraction
  if (Contraction.summed(contraction).length === 0) return new Map()
  const tokens = [...sizes.keys()].filter((i) => isTiles(sizes[i]!))
  return new Map(args.flatMap((arg, at) => {
    const own = Contraction.indicesOfOperand(contraction, at)
    const stored = tokens.some((i) => !own.has(i)) ? storedHalves(graph, arg) : undefined
    return stored === undefined ? [] : [[at, stored] as const]
  }))
}

/** Each tile of tokens converts what it reads, once for each head: or all of them read floats. */
export const storeHalves = rule(
  "store-halves",
  "contract",
  { equation: "sum_k x[t, k] h[k] = sum_k x[t, k] (stored h)[k]", bound: 0 },
  function*({ graph, node }) {
    for (const [at, stored] of halvesOfTiles(graph, node)) {
      yield {
        from: node,
        to: contract(node.contraction, node.dtype, node.args.map((arg, i) => i === at ? stored : arg))
      }
    }
  }
)
