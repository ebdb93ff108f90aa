/** Equality saturation: all rules on all nodes, until nothing is new or a bound is met. */
import type { TensorGraph } from "./Facts.ts"
import type { ClassId } from "./ENode.ts"
import type { Rewrite, Rule } from "./Rule.ts"

/** How far saturation goes. Nodes and rounds cut it at the same place on every machine. */
export interface Bounds {
  readonly nodes: number
  readonly rounds: number
  /** Past this time all that was found is dropped, as where it stops would depend on the machine. */
  readonly millis: number
}

/** Enough for a block of a transformer. */
export const usualBounds: Bounds = { nodes: 4000, rounds: 8, millis: 10_000 }

/** For whole bodies, when they are compiled. */
export const bodyBounds: Bounds = { nodes: 3000, rounds: 5, millis: 10_000 }

/** How it ended. */
export type Stop = "saturated" | "nodes" | "rounds" | "time"

/** What saturation did. */
export interface Saturation {
  readonly stop: Stop
  readonly rounds: number
  /** Rules by how often they taught something. */
  readonly applied: ReadonlyMap<string, number>
  /** What settled rules wrote, by the nodes in whose place. */
  readonly settled: ReadonlyMap<ClassId, ClassId>
}

interface Found extends Rewrite {
  readonly rule: Rule
}

/** What the rules say about nodes of which they may see more than at that time. */
const findAll = (graph: TensorGraph, rules: ReadonlyArray<Rule>, time: number): ReadonlyArray<Found> => {
  const found: Array<Found> = []
  const ofKind = Map.groupBy(rules, ({ kind }) => kind)
  for (const cls of graph.classes()) {
    for (const { id, node } of graph.members(cls)) {
      const own = ofKind.get(node.kind)
      if (own === undefined || !graph.isNewSince(time, id)) continue
      for (const rule of own) {
        for (const rewrite of rule.rewrites(graph, id, node)) found.push({ ...rewrite, rule })
      }
    }
  }
  return found
}

/** Applies the rules in rounds; the graph has room for what fits the bounds. `now` is a clock in milliseconds. */
export const saturate = (
  graph: TensorGraph,
  rules: ReadonlyArray<Rule>,
  { bounds = usualBounds, now }: { readonly bounds?: Bounds | undefined; readonly now: () => number }
): Saturation => {
  const end = now() + bounds.millis
  const applied = new Map<string, number>()
  const settled = new Map<ClassId, ClassId>()
  let seen = -1
  for (let rounds = 0; rounds < bounds.rounds; rounds++) {
    const found = findAll(graph, rules, seen)
    seen = graph.time
    for (const { from, rule: { isSettled, name }, to } of found) {
      if (now() > end) return { stop: "time", rounds, applied, settled }
      if (graph.size > bounds.nodes) {
        graph.rebuild()
        return { stop: "nodes", rounds, applied, settled }
      }
      const [was, made] = [graph.add(from), graph.addTerm(to)]
      if (!graph.union(was, made, { kind: "rule", rule: name })) continue
      applied.set(name, (applied.get(name) ?? 0) + 1)
      if (isSettled) settled.set(was, made)
    }
    graph.rebuild()
    if (graph.time === seen) return { stop: "saturated", rounds, applied, settled }
  }
  return { stop: "rounds", rounds: bounds.rounds, applied, settled }
}
