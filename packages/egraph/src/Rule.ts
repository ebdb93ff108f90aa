/** Rules: what is equal to a node, and how far apart the values may be. */
import type { TensorGraph } from "./Facts.ts"
import type { ClassId, ENode, Term } from "./ENode.ts"

/** The kinds of nodes. */
export type Kind = ENode["kind"]

/** A node of one kind. */
export type OfKind<K extends Kind> = Extract<ENode, { readonly kind: K }>

/** A node that matched, over the nodes that the rule looked at, and what it is equal to. */
export interface Rewrite {
  /** The node itself, with those members of its arguments' classes as arguments that the rule read. */
  readonly from: ENode
  readonly to: Term
}

/** A node that a rule is asked about, and the graph around it. */
export interface Site<K extends Kind> {
  readonly graph: TensorGraph
  readonly id: ClassId
  readonly node: OfKind<K>
}

/**
 * A named equation, valid over the reals. `bound` is its law: on random inputs of about 1 both sides differ by no more than
 * this, of the largest value, in float32 arithmetic; 0 where they are equal bit by bit.
 */
export interface Rule {
  readonly name: string
  /** The equation as people write it. */
  readonly equation: string
  readonly bound: number
  /** Whether the search alone decides about it: what it writes is then there, whatever becomes of all else that is found. */
  readonly isSettled: boolean
  readonly kind: Kind
  readonly rewrites: (graph: TensorGraph, id: ClassId, node: ENode) => Iterable<Rewrite>
}

/** A rule on nodes of a kind. */
export const rule = <K extends Kind>(
  name: string,
  kind: K,
  { bound, equation, isSettled = false }: Pick<Rule, "equation" | "bound"> & Partial<Pick<Rule, "isSettled">>,
  rewrites: (site: Site<K>) => Iterable<Rewrite>
): Rule => ({
  name,
  kind,
  bound,
  equation,
  isSettled,
  rewrites: (graph, id, node) => isKind(node, kind) ? rewrites({ graph, id, node }) : []
})

const isKind = <K extends Kind>(node: ENode, kind: K): node is OfKind<K> => node.kind === kind

/** The members of a class that are of a kind. */
export const membersOf = <K extends Kind>(
  graph: TensorGraph,
  id: ClassId,
  kind: K
): ReadonlyArray<{ readonly id: ClassId; readonly node: OfKind<K> }> =>
  graph.members(id).flatMap((member) => isKind(member.node, kind) ? [{ id: member.id, node: member.node }] : [])

/** The node with another argument, for a rewrite that looked into one. */
export const reading = <N extends ENode>(node: N, at: number, member: ClassId): N => ({
  ...node,
  args: node.args.map((arg, i) => i === at ? member : arg)
})
