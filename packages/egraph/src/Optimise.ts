/** A tensor program, and the cheapest equal one that the rules find for a situation. */
import type { UOp } from "@tg/core-uop/UOp"
import { Cost, EqCost } from "@tg/rangeify/Cost"
import type { Residency } from "./Analysis.ts"
import { EGraph } from "./EGraph.ts"
import { type ClassId, print } from "./ENode.ts"
import * as Explain from "./Explain.ts"
import { cheapest, extract, remembered, total, type ValueOf } from "./Extract.ts"
import { analysis, type Facts, type TensorGraph } from "./Facts.ts"
import { reader } from "./Read.ts"
import type { Rule } from "./Rule.ts"
import { type Bounds, saturate, type Saturation } from "./Saturate.ts"
import * as TensorCost from "./TensorCost.ts"
import { type Choice, writer } from "./Write.ts"

/** Where storage (PARAM, BUFFER) is, and how far to look. */
export interface Search {
  readonly residency: (storage: UOp) => Residency
  readonly rules: ReadonlyArray<Rule>
  readonly bounds?: Bounds | undefined
  /** Milliseconds; without a clock, time bounds nothing. */
  readonly now?: (() => number) | undefined
}

/** Roots in a graph. */
export interface Read {
  readonly graph: TensorGraph
  readonly ids: ReadonlyArray<ClassId>
}

/** All programs equal to one by the rules: for any situation. */
export interface Explored extends Read {
  readonly roots: ReadonlyArray<UOp>
  /** The program alone; its numbers are those of the graph. */
  readonly written: Read
  readonly saturation: Saturation
}

/** A form of what was written. */
export interface Form {
  /** In place of the roots, of the same shapes and types: themselves where nothing is cheaper. */
  readonly roots: ReadonlyArray<UOp>
  /** Microseconds by the cost model. */
  readonly micros: number
  /** What the roots are computed by, where that is not what was written. */
  readonly choice: Choice | undefined
}

/** What was chosen for a situation. */
export interface Chosen extends Form {
  /** Microseconds as written. */
  readonly writtenMicros: number
  /** As written, but for what settled rules wrote in its place. */
  readonly settled: Form
}

/** A graph of these roots, not saturated. */
export const graphOf = (roots: ReadonlyArray<UOp>, residency: Search["residency"]): Read => {
  const { graph, ids } = readInto(new EGraph<Facts>(analysis(residency)), roots, residency)
  return { graph, ids }
}

const readInto = (graph: TensorGraph, roots: ReadonlyArray<UOp>, residency: Search["residency"]) => {
  const own = reader(graph, residency)
  graph.read = own.read
  return { graph, ids: roots.map(own.read), own }
}

/** Finds what is equal to a program. */
export const explore = (
  roots: ReadonlyArray<UOp>,
  { bounds, now = () => 0, residency, rules }: Search
): Explored => {
  const { graph, ids, own } = readInto(new EGraph<Facts>(analysis(residency)), roots, residency)
  const written: Read = { graph, ids }
  const read: Read = { graph: graph.clone(), ids }
  read.graph.read = own.into(read.graph).read
  const saturation = saturate(read.graph, rules, { bounds, now })
  // what time cut off is dropped: elsewhere it would be cut at another place
  return { ...(saturation.stop === "time" ? written : read), roots, written, saturation }
}

/** The one node of each class that is only what was written. */
const asWritten = ({ graph }: Read): Choice => new Map(graph.classes().map((cls) => [cls, graph.members(cls)[0]!.node]))

/** The cheapest of all equal programs in a situation. */
export const choose = (explored: Explored, situation: TensorCost.Situation): Chosen => {
  const { graph, ids, roots, written } = explored
  const start = asWritten(written)
  const before = total(
    written.graph,
    written.ids,
    (cls) => start.get(cls),
    TensorCost.make(written.graph, situation).costOf
  )
  const costOf = remembered(TensorCost.make(graph, situation).costOf)
  const formOf = ({ choice, cost }: ReturnType<typeof total>): Form => ({
    roots: ids.map(writer(graph, choice, roots[0]!.arena).write),
    micros: cost,
    choice
  })
  const own = new Map([...start].map(([id, node]) => [graph.find(id), node]))
  const decided = asSettled(explored, own, costOf)
  const settled: Form = decided.cost < before.cost
    ? formOf(decided)
    : { roots, micros: before.cost, choice: undefined }
  const found = cheapest(graph, ids, extract(Cost, EqCost)(graph, costOf), { costOf, start: settled.choice ?? own })
  return { ...found.cost < settled.micros ? formOf(found) : settled, writtenMicros: before.cost, settled }
}

/** What was written, with what settled rules wrote in its place. */
const asSettled = ({ graph, ids, saturation: { settled } }: Explored, written: Choice, costOf: ValueOf<number>) => {
  const now = new Map([...settled].map(([was, made]) => [graph.find(was), graph.nodeOf(made)]))
  const pick = (cls: ClassId) => now.get(cls) ?? written.get(cls) ?? graph.members(cls)[0]?.node
  return now.size === 0 ? { cost: Infinity, choice: written } : total(graph, ids, pick, costOf)
}

/** The cheapest program equal to this one by the rules. */
export const optimise = (
  roots: ReadonlyArray<UOp>,
  { search, situation }: { readonly search: Search; readonly situation: TensorCost.Situation }
): Chosen => choose(explore(roots, search), situation)

/** The program as lines: what it reads by name, all else by number, what is needed first. */
export const listing = (explored: Explored, { choice }: Pick<Chosen, "choice">): ReadonlyArray<string> => {
  const { graph, ids } = choice === undefined ? explored.written : explored
  const nodes = choice ?? asWritten(explored.written)
  const lines = new Map<ClassId, string>()
  const name = (id: ClassId): string => {
    const cls = graph.find(id)
    const node = nodes.get(cls)!
    if (node.args.length === 0) return print(node, name)
    if (!lines.has(cls)) lines.set(cls, `c${cls} = ${print(node, name)}`)
    return `c${cls}`
  }
  ids.forEach(name)
  return [...lines.values()]
}

/** For each node of the program in whose place another one was chosen: the rules that say why both are equal. */
export const explanation = (explored: Explored, { choice }: Pick<Chosen, "choice">): ReadonlyArray<string> => {
  const { graph } = explored
  if (choice === undefined) return []
  const lines = new Set<string>()
  for (const [id, node] of asWritten(explored.written)) {
    const now = choice.get(graph.find(id))
    if (now === undefined) continue
    const steps = Explain.explain(graph, graph.add(node), graph.add(now)) ?? []
    for (const line of Explain.printSteps(graph, steps)) lines.add(line)
  }
  return [...lines]
}
