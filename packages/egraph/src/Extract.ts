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
export const total = <F>(
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

/** A choice that counts how often each class is read, so that another node for a class costs no more than what it changes. */
class Counted<F> {
  private readonly reads = new Map<ClassId, number>()
  /** Nodes chosen for classes, read or not. */
  private readonly own: Map<ClassId, ENode>
  private readonly graph: EGraph<F>
  private readonly usual: (cls: ClassId) => ENode | undefined
  private readonly costOf: ValueOf<number>
  private sum = 0
  /** Classes that nothing may be chosen for, among those that are read. */
  private impossible = 0

  constructor(
    graph: EGraph<F>,
    roots: ReadonlyArray<ClassId>,
    first: ReadonlyMap<ClassId, ENode>,
    { costOf, usual }: { readonly usual: (cls: ClassId) => ENode | undefined; readonly costOf: ValueOf<number> }
  ) {
    this.graph = graph
    this.own = new Map(first)
    this.usual = usual
    this.costOf = costOf
    for (const root of roots) this.read(root)
  }

  get cost(): number {
    return this.impossible > 0 ? Infinity : this.sum
  }

  /** Adds what a class costs, or takes it off. */
  private count(cls: ClassId, node: ENode | undefined, sign: 1 | -1): void {
    const cost = node === undefined ? Infinity : this.costOf(node, cls)
    if (cost === Infinity) this.impossible += sign
    else this.sum += sign * cost
  }

  pick(cls: ClassId): ENode | undefined {
    return this.own.get(cls) ?? this.usual(cls)
  }

  /** The classes that are read. */
  classes(): ReadonlyArray<ClassId> {
    return [...this.reads.keys()]
  }

  isRead(cls: ClassId): boolean {
    return this.reads.has(cls)
  }

  private read(id: ClassId): void {
    const cls = this.graph.find(id)
    const before = this.reads.get(cls) ?? 0
    this.reads.set(cls, before + 1)
    if (before > 0) return
    const node = this.pick(cls)
    this.count(cls, node, 1)
    for (const arg of node?.args ?? []) this.read(arg)
  }

  private leave(id: ClassId): void {
    const cls = this.graph.find(id)
    const before = this.reads.get(cls)!
    if (before > 1) return void this.reads.set(cls, before - 1)
    this.reads.delete(cls)
    const node = this.pick(cls)
    this.count(cls, node, -1)
    for (const arg of node?.args ?? []) this.leave(arg)
  }

  private set(cls: ClassId, node: ENode): void {
    const before = this.pick(cls)!
    for (const arg of node.args) this.read(arg)
    this.count(cls, node, 1)
    this.count(cls, before, -1)
    this.own.set(cls, node)
    for (const arg of before.args) this.leave(arg)
  }

  /** Takes another node for a class that is read, if the whole is then cheaper. */
  improves(cls: ClassId, node: ENode): boolean {
    const before = this.pick(cls)!
    const kept = this.own.get(cls)
    const { cost, sum } = this
    this.set(cls, node)
    if (this.cost < cost - least && !this.isCircular(cls)) return true
    this.set(cls, before)
    if (kept === undefined) this.own.delete(cls)
    this.sum = sum
    return false
  }

  /** Whether a class is read by what it is made of, or anything below it is. */
  private isCircular(root: ClassId): boolean {
    const done = new Set<ClassId>()
    const open = new Set<ClassId>()
    const visit = (id: ClassId): boolean => {
      const cls = this.graph.find(id)
      if (open.has(cls)) return true
      if (done.has(cls)) return false
      open.add(cls)
      const found = this.pick(cls)!.args.some(visit)
      open.delete(cls)
      done.add(cls)
      return found
    }
    return visit(root)
  }
}

/** Sums of costs that differ by less are equal. */
const least = 1e-9

/**
 * A cheap choice in which shared classes count once. Bottom-up by the cost of trees, then class by class any other node that
 * makes the whole cheaper. The best choice is NP-hard; this one is never dearer than the cheapest tree, nor than `start`. Costs are asked
 * often: they should be `remembered`.
 */
export const cheapest = <F>(
  graph: EGraph<F>,
  roots: ReadonlyArray<ClassId>,
  trees: ReadonlyMap<ClassId, number>,
  { costOf, start }: {
    readonly costOf: ValueOf<number>
    readonly start?: ReadonlyMap<ClassId, ENode> | undefined
  }
): Chosen => {
  const ranked = ranking(graph, trees, costOf)
  const usual = (cls: ClassId): ENode | undefined => ranked(cls)[0]
  const improved = (first: ReadonlyMap<ClassId, ENode>): Chosen => {
    const choice = new Counted(graph, roots, first, { costOf, usual })
    if (choice.cost === Infinity) return total(graph, roots, (cls) => choice.pick(cls), costOf)
    for (let pass = 0; pass < mostPasses; pass++) {
      let isBetter = false
      for (const cls of choice.classes()) {
        for (const node of ranked(cls)) {
          if (!choice.isRead(cls)) break
          if (node !== choice.pick(cls) && choice.improves(cls, node)) isBetter = true
        }
      }
      if (!isBetter) break
    }
    return total(graph, roots, (cls) => choice.pick(cls), costOf)
  }
  const greedy = improved(new Map())
  if (start === undefined) return greedy
  const kept = improved(start)
  return kept.cost <= greedy.cost ? kept : greedy
}

/** A value for each node, asked once. */
export const remembered = <V>(valueOf: ValueOf<V>): ValueOf<V> => {
  const known = new Map<ENode, V>()
  return (node, id) => {
    const before = known.get(node)
    if (before !== undefined) return before
    const value = valueOf(node, id)
    known.set(node, value)
    return value
  }
}
