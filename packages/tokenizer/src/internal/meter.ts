/** What rendering may use up. A template comes with a model file: it is somebody else's program. */

/** The budgets by name, as errors give them. */
export type BudgetName = "source" | "steps" | "text" | "work" | "time" | "depth"

/** How much of each there is. */
export interface Budget {
  /** Characters of a template; real ones have up to 20 000. */
  readonly source: number
  /** Nodes that may be evaluated, both runs together. */
  readonly steps: number
  /** Characters of all texts that are made; entries of lists count for several. A run has them for itself. */
  readonly text: number
  /** Characters that one operation may compare or copy. */
  readonly work: number
  /** Milliseconds, both runs together. */
  readonly time: number
  /** Nodes inside of one another, calls of macros included. */
  readonly depth: number
}

/**
 * Enough for a conversation of this many characters and values. A template touches each message some ten times, and some
 * look at all messages for each of them: the factors leave room for both with thousands of messages.
 */
export const budgetFor = (
  { characters, values }: { readonly characters: number; readonly values: number }
): Budget => ({
  source: maxSource,
  steps: 10_000_000 + 2_000 * values,
  text: 16_000_000 + 64 * characters + 1_000 * values,
  work: 2 ** 31,
  time: 5_000,
  depth: 400
})

/** The longest template that is read. */
export const maxSource = 1_000_000

/** A budget is used up. */
export class OverBudget extends Error {
  readonly budget: BudgetName

  constructor(budget: BudgetName, message: string) {
    super(message)
    this.budget = budget
  }
}

/** Counts what rendering uses up, and throws `OverBudget` when it is too much. */
export class Meter {
  readonly budget: Budget
  private readonly deadline: number
  private steps = 0
  private text = 0
  private depth = 0

  constructor(budget: Budget, until = Infinity) {
    const now = Date.now()
    this.budget = { ...budget, time: Math.max(0, Math.min(budget.time, until - now)) }
    this.deadline = now + this.budget.time
  }

  /** The second run makes its own texts, of those of the first only the result is left. */
  startRun(): void {
    this.text = 0
    this.depth = 0
  }

  /** One node is evaluated. */
  step(): void {
    if (++this.steps > this.budget.steps) {
      throw new OverBudget("steps", `it takes more than ${this.budget.steps} steps; its loops do not end`)
    }
    // the clock costs as much as a small step
    if ((this.steps & 15) === 0 && Date.now() > this.deadline) {
      throw new OverBudget(
        "time",
        `it takes longer than ${(this.budget.time / 1000).toFixed(0)} s; its loops do not end`
      )
    }
  }

  enter(): void {
    if (++this.depth > this.budget.depth) {
      throw new OverBudget("depth", `its parts lie more than ${this.budget.depth} deep in one another`)
    }
  }

  leave(): void {
    this.depth--
  }

  /** So many characters are made, and stay. */
  charge(characters: number): void {
    this.require(characters)
    this.text += characters
  }

  /** Gives back what was charged for a time. */
  release(characters: number): void {
    this.text -= characters
  }

  /** So many characters are about to be made: there must be room. */
  require(characters: number): void {
    if (!(this.text + characters <= this.budget.text)) {
      throw new OverBudget("text", `it makes more than ${this.budget.text} characters of text and lists`)
    }
  }

  /** One operation is about to compare or copy so many characters. */
  work(characters: number): void {
    if (!(characters <= this.budget.work)) {
      throw new OverBudget("work", `one of its operations compares more than ${this.budget.work} characters`)
    }
  }
}
