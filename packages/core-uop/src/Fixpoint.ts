import type { BoundedJoinSemilattice } from "fp-ts/BoundedJoinSemilattice"
import type { Eq } from "fp-ts/Eq"

/** Facts about keys: lattice values. */
export type Facts<K, A> = Iterable<readonly [K, A]>

/**
 * The least fixpoint of a data-flow problem: each key has the join of all facts about it, and `flow` gives the facts that follow
 * from that. By worklist: `flow` is asked again for a key only when its value has grown, so ascending chains must be finite. Keys
 * are in the order in which they were reached; those at `zero` are absent.
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

/** The lattice of reachability. */
export const Reached: BoundedJoinSemilattice<boolean> = { zero: false, join: (a, b) => a || b }

/** The keys that are reachable from some, which come first. */
export const reach = <K>(from: Iterable<K>, next: (key: K) => Iterable<K>): ReadonlySet<K> => {
  const facts = (keys: Iterable<K>): Facts<K, boolean> => [...keys].map((key) => [key, true] as const)
  return new Set(fixpoint(Reached, { equals: Object.is })(facts(from), (key) => facts(next(key))).keys())
}
