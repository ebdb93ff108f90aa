/**
 * What is known of the values of a class, as lattices: nodes say what they know from their arguments, and a class knows the
 * join of what its nodes say.
 */
import type * as DType from "@tg/core-uop/DType"
import { fixpoint } from "@tg/core-uop/Fixpoint"
import * as Shape from "@tg/core-uop/Shape"
import { unseen, type UOp } from "@tg/core-uop/UOp"
import type { BoundedJoinSemilattice } from "fp-ts/BoundedJoinSemilattice"
import type { Eq } from "fp-ts/Eq"
import * as Contraction from "./Contraction.ts"
import type { EGraph } from "./EGraph.ts"
import { type ClassId, dtypeOf, type ENode, shapeOf } from "./ENode.ts"

/** One kind of knowledge. `join` is that of two nodes that are equal: it never knows less than either. */
export interface Analysis<A> {
  readonly lattice: BoundedJoinSemilattice<A>
  readonly eq: Eq<A>
  /** What a node says; `arg` is known of its i-th argument. */
  readonly of: (node: ENode, arg: (i: number) => A) => A
}

/** Nothing, a value, or two values that cannot both be right: a rule is wrong then, which is a defect. */
const flat = <A>(what: string, equals: (a: A, b: A) => boolean, show: (a: A) => string): BoundedJoinSemilattice<
  A | undefined
> => ({
  zero: undefined,
  join: (a, b) => {
    if (a !== undefined && b !== undefined && !equals(a, b)) {
      throw new Error(`a rule made values of ${what} ${show(a)} and ${show(b)} equal`)
    }
    return a ?? b
  }
})

const flatEq = <A>(equals: (a: A, b: A) => boolean): Eq<A | undefined> => ({
  equals: (a, b) => a === b || (a !== undefined && b !== undefined && equals(a, b))
})

/** The shape of the values. */
export const shape: Analysis<Shape.Shape | undefined> = {
  lattice: flat("shape", Shape.equal, Shape.print),
  eq: flatEq(Shape.equal),
  of: (node, arg) => shapeOf(node, (i) => arg(i)!)
}

/** Their type. */
export const dtype: Analysis<DType.DType | undefined> = {
  lattice: flat("type", (a, b) => a === b, (a) => a.scalar),
  eq: { equals: (a, b) => a === b },
  of: (node, arg) => dtypeOf(node, (i) => arg(i)!)
}

/** The number that all elements are, where it is known. */
export const constant: Analysis<number | undefined> = {
  // other orders of the same products round otherwise: the first one stands
  lattice: { zero: undefined, join: (a, b) => a ?? b },
  eq: { equals: Object.is },
  of: (node, arg) => {
    switch (node.kind) {
      case "constant":
        return node.value
      case "contract":
        return Contraction.isSum(node.contraction)
          ? undefined
          : node.args.reduce<number | undefined>((product, _, i) => times(product, arg(i)), 1)
      case "slice":
      case "stored":
        return arg(0)
      default:
        return undefined
    }
  }
}

const times = (a: number | undefined, b: number | undefined): number | undefined =>
  a === undefined || b === undefined ? undefined : a * b

/** Where values come from. */
export type Residency = "weight" | "cache" | "activation"

const bits: Readonly<Record<Residency, number>> = { weight: 1, cache: 2, activation: 4 }
const anywhere = 7

/** Where all that a value is computed from comes from: a union of places, as bits. Of equal nodes each is right, so both are. */
export const residency = (of: (storage: UOp) => Residency): Analysis<number> => {
  const placesUnder = placing(of)
  return {
    lattice: { zero: anywhere, join: (a, b) => a & b },
    eq: { equals: (a, b) => a === b },
    of: (node, arg) => {
      const own = node.kind === "other" && node.args.length === 0 ? placesUnder(node.origin.uop) : 0
      return node.args.reduce((all, _, i) => all | arg(i), own)
    }
  }
}

/** The places of all storage under a node; leaves have much of their unpacking in common. */
const placing = (of: (storage: UOp) => Residency): (leaf: UOp) => number => {
  const known = new Map<UOp, number>()
  return (leaf) => {
    for (const node of unseen(leaf, (n) => known.has(n))) {
      let places = node.op === "PARAM" || node.op === "BUFFER" ? bits[of(node)] : 0
      for (const source of node.src) places |= known.get(source)!
      known.set(node, places)
    }
    return known.get(leaf)!
  }
}

/** Whether a value is computed from weights alone: what no step changes. */
export const isStatic = (places: number): boolean => places === bits.weight

/** The places of a value, by name. */
export const places = (residency: number): ReadonlyArray<Residency> =>
  (Object.keys(bits) as ReadonlyArray<Residency>).filter((name) => (residency & bits[name]) !== 0)

/** What an analysis that a graph does not keep knows of its classes, as they are. */
export const known = <A, F>(graph: EGraph<F>, { eq, lattice, of }: Analysis<A>): ReadonlyMap<ClassId, A> => {
  const found = new Map<ClassId, A>()
  const said = (id: ClassId) => {
    const node = graph.nodeOf(id)
    return [graph.find(id), of(node, (i) => found.get(graph.find(node.args[i]!)) ?? lattice.zero)] as const
  }
  const leaves = graph.classes().flatMap((cls) =>
    graph.members(cls).filter(({ node }) => node.args.length === 0).map(({ id }) => said(id))
  )
  return fixpoint(lattice, eq)(leaves, (cls, value) => {
    found.set(cls, value)
    return graph.parents(cls).map(said)
  })
}

type Fields = { readonly [name: string]: Analysis<never> }
type Facts<R> = { readonly [N in keyof R]: R[N] extends Analysis<infer A> ? A : never }

/** All of them at once: the product of their lattices. */
export const all = <const R extends { readonly [N in keyof R]: Analysis<R[N] extends Analysis<infer A> ? A : never> }>(
  fields: R
): Analysis<Facts<R>> => {
  const each = fields as unknown as Fields // the record's types say what each field knows; here they are all alike
  const names = Object.keys(each)
  const record = (value: (name: string) => unknown): Facts<R> => {
    const facts: Record<string, unknown> = {}
    for (const name of names) facts[name] = value(name)
    return facts as Facts<R>
  }
  const at = (facts: Facts<R>, name: string): never => facts[name as keyof R] as never
  return {
    lattice: {
      zero: record((name) => each[name]!.lattice.zero),
      join: (a, b) => record((name) => each[name]!.lattice.join(at(a, name), at(b, name)))
    },
    eq: { equals: (a, b) => names.every((name) => each[name]!.eq.equals(at(a, name), at(b, name))) },
    of: (node, arg) => record((name) => each[name]!.of(node, (i) => at(arg(i), name)))
  }
}
