import type { Eq } from "fp-ts/Eq"
import type { Semiring } from "fp-ts/Semiring"

/** Cheapest derivation: choose with `min`, chain with `+`. `zero` is what cannot be done, `one` is what costs nothing. */
export const Cost: Semiring<number> = {
  zero: Infinity,
  one: 0,
  add: (a, b) => Math.min(a, b),
  mul: (a, b) => a + b
}

/** Costs in sequence: a product of the semiring. */
export const chain = (costs: ReadonlyArray<number>): number => costs.reduce(Cost.mul, Cost.one)

/** The power of `mul`. */
export const times = (cost: number, count: number): number => count === 0 ? Cost.one : cost * count

/** Costs are compared exactly. */
export const EqCost: Eq<number> = { equals: (a, b) => a === b }

/**
 * All candidates that a semiring chooses, in their order: those whose value is the sum of all. The sum has to choose one of
 * the values, as `min` and `max` do.
 */
export const chosen =
  <V>({ add, zero }: Semiring<V>, { equals }: Eq<V>) =>
  <A>(candidates: ReadonlyArray<A>, valueOf: (candidate: A) => V): ReadonlyArray<A> => {
    const values = candidates.map(valueOf)
    const best = values.reduce(add, zero)
    return candidates.filter((_, i) => equals(values[i]!, best))
  }

/** All candidates of the least cost, in their order. */
export const cheapest = chosen(Cost, EqCost)

/**
 * The laws of a semiring that these values break, as `mul distributes over add: 1, 2, 3`; empty for a semiring. Compares
 * with `equals`, so give it values on which the operations are exact.
 */
export const brokenLaws = <A>(
  { add, mul, one, zero }: Semiring<A>,
  { equals }: Eq<A>,
  values: ReadonlyArray<A>
): ReadonlyArray<string> => {
  const laws: Readonly<Record<string, (a: A, b: A, c: A) => boolean>> = {
    "add is associative": (a, b, c) => equals(add(add(a, b), c), add(a, add(b, c))),
    "add is commutative": (a, b) => equals(add(a, b), add(b, a)),
    "zero is neutral for add": (a) => equals(add(a, zero), a) && equals(add(zero, a), a),
    "mul is associative": (a, b, c) => equals(mul(mul(a, b), c), mul(a, mul(b, c))),
    "one is neutral for mul": (a) => equals(mul(a, one), a) && equals(mul(one, a), a),
    "zero annihilates": (a) => equals(mul(a, zero), zero) && equals(mul(zero, a), zero),
    "mul distributes over add": (a, b, c) =>
      equals(mul(a, add(b, c)), add(mul(a, b), mul(a, c))) && equals(mul(add(a, b), c), add(mul(a, c), mul(b, c)))
  }
  return Object.entries(laws).flatMap(([name, holds]) => {
    for (const a of values) {
      for (const b of values) for (const c of values) if (!holds(a, b, c)) return [`${name}: ${String([a, b, c])}`]
    }
    return []
  })
}
