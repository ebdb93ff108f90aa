import type { BoundedJoinSemilattice } from "fp-ts/BoundedJoinSemilattice"
import type { Eq } from "fp-ts/Eq"

/** What is known of some keys, as far as that is more than nothing, in the order in which they were reached. */
export type Facts<K, A> = Iterable<readonly [K, A]>

/**
 * The least solution of a flow: each key has the join of all facts about it, and passes on what `flow` makes of that. It is found
 * when nothing grows any more, so no value may grow for ever; a flow is asked again for a key only when its value has grown.
 */
export const fixpoint = <A>({ join, zero }: BoundedJoinSemilattice<A>, { equals }: Eq<A>) =>
<K>(
  facts: Facts<K, A>,
  flow: (key: K, value: A) => Facts<K, A> = () => []
): ReadonlyMap<K, A> => {
  const known = new Map<K, A>()
  const grown = new Set<K>()
  const learn = (all: Facts<K, A>): void => {
    for (const [key, fact] of all) {
      const before = known.get(key) ?? zero
      const after = join(before, fact)
      if (equals(before, after)) continue
      known.set(key, after)
      grown.add(key)
    }
  }
  learn(facts)
  for (const key of grown) {
    grown.delete(key)
    learn(flow(key, known.get(key)!))
  }
  return known
}

/** Whether something is reached at all. */
export const Reached: BoundedJoinSemilattice<boolean> = { zero: false, join: (a, b) => a || b }

/** What is reached from some keys, they themselves first. */
export const reach = <K>(from: Iterable<K>, next: (key: K) => Iterable<K>): ReadonlySet<K> => {
  const facts = (keys: Iterable<K>): Facts<K, boolean> => [...keys].map((key) => [key, true] as const)
  return new Set(fixpoint(Reached, { equals: Object.is })(facts(from), (key) => facts(next(key))).keys())
}
