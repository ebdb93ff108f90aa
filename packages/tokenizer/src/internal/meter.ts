/** Budgets of rendering. A template comes with a model file: it is an untrusted program. */

/** The budgets by name, as errors give them. */
export type BudgetName = "source" | "steps" | "text" | "work" | "time" | "depth"

/** The budgets. */
export interface Budget {
  /** Characters of a template; real ones have up to 20 000. */
  readonly source: number
  /** Nodes that may be evaluated, both runs together. */
  readonly steps: number
  /** Characters of all texts that are made; entries of lists count as several. Each run has this budget for itself. */
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

/** Counts what rendering uses, and throws `OverBudget` beyond a budget. */
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

  /** The texts of the first run are garbage by now, except for its result. */
  startRun(): void {
    this.text = 0
    this.depth = 0
  }

  /** One node is evaluated. */
  step(): void {
    if (++this.steps > this.budget.steps) {
      throw new OverBudget("steps", `it takes more than ${this.budget.steps} steps; its loops do not end`)
    }
    // reading the clock costs as much as a small step
    if ((this.steps & 15) === 0 && Date.now() >= this.deadline) {
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

  /** Charges so many characters. */
  charge(characters: number): void {
    this.require(characters)
    this.text += characters
  }

  /** Releases a charge. */
  release(characters: number): void {
    this.text -= characters
  }

  /** Checks that there is room for so many characters. */
  require(characters: number): void {
    if (!(this.text + characters <= this.budget.text)) {
      throw new OverBudget("text", `it makes more than ${this.budget.text} characters of text and lists`)
    }
  }

  /** Checks the work of one operation, in characters that it compares or copies. */
  work(characters: number): void {
    if (!(characters <= this.budget.work)) {
      throw new OverBudget("work", `one of its operations compares more than ${this.budget.work} characters`)
    }
  }
}
