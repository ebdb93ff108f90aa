/**
 * What is known of the values of a class, as lattices: nodes say what they know from their arguments, and a class knows the
 * join of what its nodes say.
 */
import type * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import type { UOp } from "@tg/core-uop/UOp"
import type { BoundedJoinSemilattice } from "fp-ts/BoundedJoinSemilattice"
import type { Eq } from "fp-ts/Eq"
import * as Contraction from "./Contraction.ts"
import { dtypeOf, type ENode, shapeOf } from "./ENode.ts"

/** One kind of knowledge. `join` is that of two nodes that are equal: it never knows less than either. */
export interface Analysis<A> {
  readonly lattice: BoundedJoinSemilattice<A>
  readonly eq: Eq<A>
  readonly of: (node: ENode, args: ReadonlyArray<A>) => A
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
  of: (node, args) => shapeOf(node, (i) => args[i]!)
}

/** Their type. */
export const dtype: Analysis<DType.DType | undefined> = {
  lattice: flat("type", (a, b) => a === b, (a) => a.scalar),
  eq: { equals: (a, b) => a === b },
  of: (node, args) => dtypeOf(node, (i) => args[i]!)
}

/** The number that all elements are, where it is known. */
export const constant: Analysis<number | undefined> = {
  // other orders of the same products round otherwise: the first one stands
  lattice: { zero: undefined, join: (a, b) => a ?? b },
  eq: { equals: Object.is },
  of: (node, args) => {
    switch (node.kind) {
      case "constant":
        return node.value
      case "contract": {
        const isSum = Contraction.summed(node.contraction).length > 0
        return isSum || args.some((x) => x === undefined) ? undefined : args.reduce<number>((a, b) => a * b!, 1)
      }
      case "slice":
      case "stored":
        return args[0]
      default:
        return undefined
    }
  }
}

/** Where values come from. */
export type Residency = "weight" | "cache" | "activation"

const bits: Readonly<Record<Residency, number>> = { weight: 1, cache: 2, activation: 4 }
const anywhere = 7

/** Where all that a value is computed from comes from: a union of places, as bits. Of equal nodes each is right, so both are. */
export const residency = (of: (storage: UOp) => Residency): Analysis<number> => ({
  lattice: { zero: anywhere, join: (a, b) => a & b },
  eq: { equals: (a, b) => a === b },
  of: (node, args) => {
    const own = node.kind === "other" && node.args.length === 0 ? placesUnder(node.origin.uop, of) : 0
    return args.reduce((all, arg) => all | arg, own)
  }
})

const placesUnder = (leaf: UOp, of: (storage: UOp) => Residency): number => {
  const seen = new Set<UOp>()
  const stack = [leaf]
  let places = 0
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    if (seen.has(node)) continue
    seen.add(node)
    if (node.op === "PARAM" || node.op === "BUFFER") places |= bits[of(node)]
    stack.push(...node.src)
  }
  return places
}

/** Whether a value is computed from weights alone: what no step changes. */
export const isStatic = (places: number): boolean => places === bits.weight

/** The places of a value, by name. */
export const places = (residency: number): ReadonlyArray<Residency> =>
  (Object.keys(bits) as ReadonlyArray<Residency>).filter((name) => (residency & bits[name]) !== 0)

/** Of the leaves that a value is computed from, those in which it is linear while the others stand still. */
export interface Linearity {
  readonly reads: ReadonlySet<UOp>
  readonly linear: ReadonlySet<UOp>
}

const noLeaves: ReadonlySet<UOp> = new Set()
const sameSet = <A>(a: ReadonlySet<A>, b: ReadonlySet<A>): boolean =>
  a === b || (a.size === b.size && [...a].every((x) => b.has(x)))
const union = <A>(a: ReadonlySet<A>, b: ReadonlySet<A>): ReadonlySet<A> => new Set([...a, ...b])
const intersection = <A>(a: ReadonlySet<A>, b: ReadonlySet<A>): ReadonlySet<A> =>
  new Set([...a].filter((x) => b.has(x)))

/** In which operands a value is linear: a property of the value, so that equal nodes teach each other. */
export const linearity: Analysis<Linearity | undefined> = {
  lattice: {
    zero: undefined,
    join: (a, b) =>
      a === undefined || b === undefined
        ? a ?? b
        : { reads: intersection(a.reads, b.reads), linear: union(a.linear, b.linear) }
  },
  eq: flatEq((a, b) => sameSet(a.reads, b.reads) && sameSet(a.linear, b.linear)),
  of: (node, given) => {
    const args = given.map((arg) => arg ?? { reads: noLeaves, linear: noLeaves })
    const reads = args.reduce<ReadonlySet<UOp>>((all, arg) => union(all, arg.reads), noLeaves)
    if (node.kind === "other") {
      const { uop } = node.origin
      return node.args.length === 0 ? { reads: new Set([uop]), linear: new Set([uop]) } : { reads, linear: noLeaves }
    }
    return { reads, linear: new Set([...reads].filter((leaf) => isLinear(node, args, leaf))) }
  }
}

const isLinear = (node: ENode, args: ReadonlyArray<Linearity>, leaf: UOp): boolean => {
  const readers = args.filter((arg) => arg.reads.has(leaf))
  const areLinear = readers.every((arg) => arg.linear.has(leaf))
  switch (node.kind) {
    case "contract":
      return areLinear && readers.length === 1
    case "slice":
    case "stored":
      return areLinear
    case "concat":
      return areLinear && readers.length === args.length
    case "pointwise":
      // homogeneous: both terms, or the numerator alone
      return areLinear && (node.op === "ADD" ? readers.length === 2 : readers.length === 1 && readers[0] === args[0])
    default:
      return false
  }
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
    of: (node, args) => record((name) => each[name]!.of(node, args.map((arg) => at(arg, name))))
  }
}
