/** The budget of a compilation: transitions that it may look at. */

/** Thrown inside of a compilation that has taken its steps; `withSteps` says how many. */
export class TooManySteps {
  readonly limit: number
  constructor(limit: number) {
    this.limit = limit
  }
}

/** Transitions that may still be looked at. Counted, not timed: a schema is refused on all machines or on none. */
let steps = { limit: Infinity, taken: 0 }

/** Runs something that may look at so many transitions before it is given up. */
export const withSteps = <A>(limit: number, run: () => A): A => {
  const before = steps
  steps = { limit, taken: 0 }
  try {
    return run()
  } finally {
    steps = before
  }
}

/** Counts transitions that are looked at now. */
export const take = (count: number): void => {
  steps.taken += count
  if (steps.taken > steps.limit) throw new TooManySteps(steps.limit)
}
