/** The best expressions of an e-graph. */
import { fixpoint } from "@tg/core-uop/Fixpoint"
import type { Eq } from "fp-ts/Eq"
import type { Semiring } from "fp-ts/Semiring"
import type { EGraph } from "./EGraph.ts"
import type { ClassId, ENode } from "./ENode.ts"

/** What a node is worth by itself. */
export type ValueOf<V> = (node: ENode, id: ClassId) => V

/**
 * The value of each class: the semiring's sum over its nodes of the product of a node's own value and those of its arguments.
 * `add` chooses (it is idempotent), and no node makes its arguments better, so that circles end: `Cost`, or what can be built at
 * all. A shared argument counts for each of its uses; `cheapest` counts it once.
 */
export const extract =
  <V>(semiring: Semiring<V>, eq: Eq<V>) => <F>(graph: EGraph<F>, valueOf: ValueOf<V>): ReadonlyMap<ClassId, V> => {
    const known = new Map<ClassId, V>()
    const own = new Map<ClassId, V>()
    const ownOf = (id: ClassId): V => {
      const before = own.get(id)
      if (before !== undefined) return before
      const value = valueOf(graph.nodeOf(id), graph.find(id))
      own.set(id, value)
      return value
    }
    const total = (id: ClassId): V =>
      graph.nodeOf(id).args.reduce(
        (product, arg) => semiring.mul(product, known.get(graph.find(arg)) ?? semiring.zero),
        ownOf(id)
      )
    const leaves = graph.classes().flatMap((cls) =>
      graph.members(cls).filter(({ node }) => node.args.length === 0).map(({ id }) => [cls, total(id)] as const)
    )
    return fixpoint({ zero: semiring.zero, join: semiring.add }, eq)(leaves, (cls, value) => {
      known.set(cls, value)
      return graph.parents(cls).map((id) => [graph.find(id), total(id)] as const)
    })
  }

/** A node for each class that is needed, and what all of them cost. */
export interface Chosen {
  readonly cost: number
  readonly choice: ReadonlyMap<ClassId, ENode>
}

/** What a choice costs, each class once; infinite where it is circular or incomplete. */
const total = <F>(
  graph: EGraph<F>,
  roots: ReadonlyArray<ClassId>,
  pick: (cls: ClassId) => ENode | undefined,
  costOf: ValueOf<number>
): Chosen => {
  const choice = new Map<ClassId, ENode>()
  const open = new Set<ClassId>()
  let cost = 0
  const visit = (id: ClassId): boolean => {
    const cls = graph.find(id)
    if (choice.has(cls)) return true
    const node = open.has(cls) ? undefined : pick(cls)
    if (node === undefined) return false
    open.add(cls)
    const isWhole = node.args.every(visit)
    open.delete(cls)
    choice.set(cls, node)
    cost += costOf(node, cls)
    return isWhole
  }
  return roots.every(visit) ? { cost, choice } : { cost: Infinity, choice }
}

/** Members whose arguments have a value, the cheapest tree first. */
type Ranked = (cls: ClassId) => ReadonlyArray<ENode>

const ranking = <F>(graph: EGraph<F>, trees: ReadonlyMap<ClassId, number>, costOf: ValueOf<number>): Ranked => {
  const known = new Map<ClassId, ReadonlyArray<ENode>>()
  return (cls) => {
    const before = known.get(cls)
    if (before !== undefined) return before
    const tree = (node: ENode): number =>
      node.args.reduce((sum, arg) => sum + (trees.get(graph.find(arg)) ?? Infinity), costOf(node, cls))
    const ranked = graph.members(cls).map(({ node }) => ({ node, cost: tree(node) }))
      .filter(({ cost }) => cost < Infinity).sort((a, b) => a.cost - b.cost).map(({ node }) => node)
    known.set(cls, ranked)
    return ranked
  }
}

/** Passes over all classes that local improvement makes at most. */
const mostPasses = 4

/**
 * A cheap choice in which shared classes count once. Bottom-up by the cost of trees, then class by class any other node that
 * makes the whole cheaper. The best choice is NP-hard; this one is never dearer than the cheapest tree, nor than `start`.
 */
export const cheapest = <F>(
  graph: EGraph<F>,
  roots: ReadonlyArray<ClassId>,
  trees: ReadonlyMap<ClassId, number>,
  { costOf, start }: { readonly costOf: ValueOf<number>; readonly start?: ReadonlyMap<ClassId, ENode> | undefined }
): Chosen => {
  const ranked = ranking(graph, trees, costOf)
  const improved = (first: ReadonlyMap<ClassId, ENode>): Chosen => {
    const other = new Map(first)
    const pick = (cls: ClassId): ENode | undefined => other.get(cls) ?? ranked(cls)[0]
    let best = total(graph, roots, pick, costOf)
    for (let pass = 0; pass < mostPasses; pass++) {
      const before = best.cost
      for (const cls of [...best.choice.keys()]) {
        for (const node of ranked(cls)) {
          const kept = other.get(cls)
          other.set(cls, node)
          const now = total(graph, roots, pick, costOf)
          if (now.cost < best.cost) best = now
          else if (kept === undefined) other.delete(cls)
          else other.set(cls, kept)
        }
      }
      if (best.cost === before) break
    }
    return best
  }
  const greedy = improved(new Map())
  if (start === undefined) return greedy
  const kept = improved(start)
  return kept.cost <= greedy.cost ? kept : greedy
}
