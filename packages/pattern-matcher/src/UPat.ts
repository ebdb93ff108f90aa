import type { ScalarName } from "@tg/core-uop/DType"
import { commutative, type Op } from "@tg/core-uop/Op"
import type { Arg, UOp } from "@tg/core-uop/UOp"

/** The pattern of a node's sources. */
export type Sources =
  | { readonly kind: "exact"; readonly patterns: ReadonlyArray<UPat<string>> }
  /** Two sources in either order. */
  | { readonly kind: "commutative"; readonly patterns: readonly [UPat<string>, UPat<string>] }
  /** The first sources; any number may follow. */
  | { readonly kind: "prefix"; readonly patterns: ReadonlyArray<UPat<string>> }
  /** Each source, however many. Names in it do not become captures. */
  | { readonly kind: "every"; readonly pattern: UPat<string> }

/** A pattern over nodes, as data. `N` are the names it captures; what is undefined is not checked. */
export interface UPat<out N extends string = never> {
  readonly ops: ReadonlyArray<Op> | undefined
  readonly scalars: ReadonlyArray<ScalarName> | undefined
  /** The node's arg equals this value (`Object.is` for numbers: -0 is not 0 and `false` is not 0). */
  readonly arg: { readonly value: Arg } | undefined
  /** Captured under this name. The same name twice asks for the same node. */
  readonly name: N | undefined
  readonly sources: Sources | undefined
  readonly alternatives: ReadonlyArray<UPat<string>> | undefined
  readonly test: ((node: UOp) => boolean) | undefined
}

/** The names a pattern captures. */
export type NamesOf<P> = P extends UPat<infer N> ? N : never

const everything: UPat = {
  ops: undefined,
  scalars: undefined,
  arg: undefined,
  name: undefined,
  sources: undefined,
  alternatives: undefined,
  test: undefined
}

// names of sub-patterns are captures of the whole, which the type of the data does not track
const typed = <N extends string>(pattern: UPat<string>): UPat<N> => pattern as UPat<N>

/** Any node, captured. */
export const any = <const N extends string>(name: N): UPat<N> => ({ ...everything, name })

/** Any node, not captured. */
export const anything: UPat = everything

/** The same pattern, captured. */
export const named = <N extends string, const M extends string>(pattern: UPat<N>, name: M): UPat<N | M> =>
  typed({ ...(pattern as UPat<string>), name })

/** The same pattern for values of these scalar types (any lane count). */
export const ofType = <N extends string>(pattern: UPat<N>, ...scalars: ReadonlyArray<ScalarName>): UPat<N> => ({
  ...pattern,
  scalars
})

/** The same pattern, for nodes that also pass a predicate. */
export const satisfying = <N extends string>(pattern: UPat<N>, test: (node: UOp) => boolean): UPat<N> => ({
  ...pattern,
  test
})

/** The same pattern, for nodes with this arg. */
export const withArg = <N extends string>(pattern: UPat<N>, value: Arg): UPat<N> => ({ ...pattern, arg: { value } })

/** Alternatives, tried in order with backtracking: the first one for which the whole rule gives a result. */
export const anyOf = <const P extends ReadonlyArray<UPat<string>>>(...alternatives: P): UPat<NamesOf<P[number]>> =>
  typed({ ...everything, alternatives })

type Names<P extends ReadonlyArray<UPat<string>>> = NamesOf<P[number]>

/** A node of one of these operations with exactly these sources; in either order where the operation commutes. */
export const op = <const P extends ReadonlyArray<UPat<string>>>(
  ops: Op | ReadonlyArray<Op>,
  ...patterns: P
): UPat<Names<P>> => {
  const list = typeof ops === "string" ? [ops] : ops
  const [a, b] = patterns
  const swaps = patterns.length === 2 && list.every((o) => commutative.has(o))
  return typed({
    ...everything,
    ops: list,
    sources: swaps ? { kind: "commutative", patterns: [a!, b!] } : { kind: "exact", patterns }
  })
}

/** A node of one of these operations with any sources. */
export const node = (...ops: ReadonlyArray<Op>): UPat => ({ ...everything, ops })

/** Exactly these sources in this order, also for an operation that commutes. */
export const inOrder = <const P extends ReadonlyArray<UPat<string>>>(ops: Op, ...patterns: P): UPat<Names<P>> =>
  typed({ ...everything, ops: [ops], sources: { kind: "exact", patterns } })

/** An operation whose first sources match; more may follow. */
export const startsWith = <const P extends ReadonlyArray<UPat<string>>>(
  ops: Op | ReadonlyArray<Op>,
  ...patterns: P
): UPat<Names<P>> =>
  typed({ ...everything, ops: typeof ops === "string" ? [ops] : ops, sources: { kind: "prefix", patterns } })

/** An operation all of whose sources match. */
export const every = (ops: Op | ReadonlyArray<Op>, pattern: UPat<string>): UPat => ({
  ...everything,
  ops: typeof ops === "string" ? [ops] : ops,
  sources: { kind: "every", pattern }
})

const hasValue = (node: UOp, value: number | boolean | undefined): boolean =>
  value === undefined || Object.is(node.arg, value)

/** A scalar constant, with this value if one is given: its arg is the value. `uniform` also takes vectors. */
export const constant = <const N extends string>(name: N, value?: number | boolean): UPat<N> => ({
  ...everything,
  name,
  ops: ["CONST"],
  test: value === undefined ? undefined : (node) => hasValue(node, value)
})

const isUniform = (value: number | boolean | undefined) => (node: UOp): boolean => {
  if (node.op === "CONST") return hasValue(node, value)
  const first = node.src[0]!
  return first.op === "CONST" && node.src.every((s) => s === first) && hasValue(first, value)
}

/**
 * A constant, or a vector with the same constant in every lane; with this value if one is given. A vector has no arg: `valueOf`
 * is the value of both.
 */
export const uniform = <const N extends string>(name: N, value?: number | boolean): UPat<N> => ({
  ...everything,
  name,
  ops: ["CONST", "STACK"],
  test: isUniform(value)
})

/** The value of a constant, or of a vector with the same constant in every lane. */
export const valueOf = (node: UOp): number | boolean | undefined => {
  const scalar = node.op === "STACK" && node.src.every((s) => s === node.src[0]) ? node.src[0]! : node
  return scalar.is("CONST") ? scalar.arg : undefined
}

const valued = (value: number | boolean): UPat => ({ ...everything, ops: ["CONST", "STACK"], test: isUniform(value) })

export const zero: UPat = valued(0)
export const one: UPat = valued(1)
export const minusOne: UPat = valued(-1)
export const yes: UPat = valued(true)
export const no: UPat = valued(false)

type Binary = <A extends string, B extends string>(a: UPat<A>, b: UPat<B>) => UPat<A | B>
const binary = (name: Op): Binary => (a, b) => op(name, a, b)
type Unary = <A extends string>(a: UPat<A>) => UPat<A>
const unary = (name: Op): Unary => (a) => op(name, a)

export const add = binary("ADD")
export const sub = binary("SUB")
export const mul = binary("MUL")
export const fdiv = binary("FDIV")
export const floordiv = binary("FLOORDIV")
export const floormod = binary("FLOORMOD")
export const max = binary("MAX")
export const min = binary("MIN")
export const and = binary("AND")
export const or = binary("OR")
export const xor = binary("XOR")
export const shl = binary("SHL")
export const shr = binary("SHR")
export const lt = binary("CMPLT")
export const eq = binary("CMPEQ")
export const ne = binary("CMPNE")
export const neg = unary("NEG")
export const cast = unary("CAST")
export const bitcast = unary("BITCAST")
export const load = unary("LOAD")
/** `!x` for booleans. */
export const not = <A extends string>(x: UPat<A>): UPat<A> => ofType(xor(x, yes), "bool")
export const where = <C extends string, A extends string, B extends string>(
  condition: UPat<C>,
  a: UPat<A>,
  b: UPat<B>
): UPat<C | A | B> => op("WHERE", condition, a, b)
/** An element of a buffer, with its gate if one is given. */
export const index = <const P extends ReadonlyArray<UPat<string>>>(...patterns: P): UPat<Names<P>> =>
  op("INDEX", ...patterns)
export const store = <A extends string, B extends string>(target: UPat<A>, value: UPat<B>): UPat<A | B> =>
  op("STORE", target, value)
