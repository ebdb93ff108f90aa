/**
 * Best-first search over a space whose costs must be measured. Pure: a generator that yields batches of candidates and receives their
 * costs, so the same costs and the same seed give the same course.
 */

/** A candidate to try because another one was good. */
export interface Neighbour<C> {
  readonly candidate: C
  /** A penalty factor from 1: the higher, the later it is tried. */
  readonly delay: number
}

/** A search space. */
export interface Space<C> {
  /** Candidates with equal keys are the same. */
  readonly keyOf: (candidate: C) => string
  /** Neighbours of a candidate. Called only for promising ones. */
  readonly neighbours: (candidate: C) => ReadonlyArray<Neighbour<C>>
  /** Whether a neighbour is valid. Called lazily, when it is its turn. */
  readonly accepts: (candidate: C) => boolean
}

/** Parameters of the search. */
export interface Options {
  /** Breaks ties. */
  readonly seed: number
  /** Candidates that are measured at a time. */
  readonly batch: number
  /** Candidates to measure before it ends, at most. */
  readonly most: number
  /** Neighbours are tried of candidates that cost up to this many times the best. */
  readonly patience: number
}

/** A candidate and its cost: `Infinity` for one that failed. */
export interface Measured<C> {
  readonly candidate: C
  readonly cost: number
}

interface Waiting<C> {
  readonly candidate: C
  /** The parent's cost times the delay: the lower, the sooner it is tried. */
  readonly priority: number
  readonly tie: number
}

/** A number from 0 to 1 for a seed and a counter. */
const noise = (seed: number, i: number): number => {
  let x = Math.imul(seed + 1, 0x9e3779b1) ^ Math.imul(i + 1, 0x85ebca6b)
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d)
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b)
  return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32
}

/**
 * Yields batches of candidates, is sent their costs in the same order, and ends with everything measured, the cheapest first,
 * when no neighbour is left or `most` is reached. It may be left at any time. The first batch are the initial candidates.
 */
export function* search<C>(
  space: Space<C>,
  initial: ReadonlyArray<C>,
  { batch, most, patience, seed }: Options
): Generator<ReadonlyArray<C>, ReadonlyArray<Measured<C>>, ReadonlyArray<number>> {
  const seen = new Set(initial.map(space.keyOf))
  const measured: Array<Measured<C>> = []
  /** The frontier: unmeasured neighbours, and unexpanded candidates. Both are sorted. */
  let waiting: Array<Waiting<C>> = []
  let parents: Array<Measured<C>> = []
  const expand = ({ candidate: parent, cost }: Measured<C>): void => {
    for (const { candidate, delay } of space.neighbours(parent)) {
      const key = space.keyOf(candidate)
      if (seen.has(key)) continue
      seen.add(key)
      waiting.push({ candidate, priority: cost * delay, tie: noise(seed, seen.size) })
    }
    waiting.sort((a, b) => a.priority - b.priority || a.tie - b.tie)
  }
  /** The next candidates, those near the cheapest ones first. */
  const take = (count: number): ReadonlyArray<C> => {
    const taken: Array<C> = []
    while (taken.length < count) {
      const [parent, next] = [parents[0], waiting[0]]
      if (parent !== undefined && (next === undefined || parent.cost <= next.priority)) {
        parents.shift()
        expand(parent)
      } else if (next !== undefined) {
        waiting.shift()
        if (space.accepts(next.candidate)) taken.push(next.candidate)
      } else break
    }
    return taken
  }
  let taken = initial
  while (taken.length > 0) {
    const costs = yield taken
    const told = taken.map((candidate, i): Measured<C> => ({ candidate, cost: costs[i]! }))
    measured.push(...told)
    const limit = patience * Math.min(...measured.map(({ cost }) => cost))
    waiting = waiting.filter(({ priority }) => priority <= limit)
    parents = [...parents, ...told].filter(({ cost }) => cost <= limit).toSorted((a, b) => a.cost - b.cost)
    taken = take(Math.min(batch, most - measured.length))
  }
  return measured.toSorted((a, b) => a.cost - b.cost)
}
