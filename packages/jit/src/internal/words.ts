/** Words that readers of persistent launches await, where a program does not run to its end. */
import * as Phases from "@tg/core-uop/Phases"
import type * as Plan from "../Plan.ts"

/**
 * How many launches leave no words where the first launch of a program has its own (`Phases.waiting`), which takes them for its own: so many, or up to the one that clears them.
 */
export const untilCleared = (plan: Plan.ExecutionPlan, count: number): number => {
  const isAwaited = (launch: Plan.Launch): boolean => wordsOf(plan, launch) !== undefined
  const last = plan.launches.slice(0, count).findLast(isAwaited)
  if (last === undefined || wordsOf(plan, last) !== firstWords) return count
  return count + 1 + plan.launches.slice(count).findIndex(isAwaited)
}

/** Where the words of the first launch of a program lie, in bytes. */
const firstWords = 4 * Phases.beginOf(0)

/** Where the words lie that readers of a launch await, in bytes; none, if they await none. What it clears is bound behind them. */
const wordsOf = ({ meeting }: Plan.ExecutionPlan, { slots }: Plan.Launch): number | undefined =>
  slots.find((slot) => slot.kind === "block" && slot.block === meeting && (slot.window?.offset ?? 0) > 0)?.window
    ?.offset
