/** Which tokens a step takes, of those that conversations wait for: a pure choice. */

/** What a conversation waits for. */
export interface Waiting {
  /** Tokens that are not computed yet. */
  readonly tokens: number
  /** Behind how many of the last ones logits are wanted. */
  readonly rows: number
  /** The number of the last step that took tokens of it; smaller is longer ago. */
  readonly servedAt: number
}

/** What a step has room for. */
export interface Room {
  /** Tokens of a step at most. */
  readonly tokens: number
  /** Tokens of prompts that a step takes while others write: what these wait for at most. */
  readonly chunk: number
}

/** Whether it is in the middle of writing: all it waits for are the tokens whose logits it wants. */
const isWriting = ({ rows, tokens }: Waiting): boolean => tokens <= rows

/**
 * How many tokens of each a step takes. Those that have waited longest come first; who writes gets all it waits for, and what is left
 * goes to prompts, piece by piece. Where nobody writes, prompts fill the step.
 */
export const choose = (waiting: ReadonlyArray<Waiting>, { chunk, tokens }: Room): ReadonlyArray<number> => {
  const taken = waiting.map(() => 0)
  const order = [...waiting.keys()].sort((a, b) => waiting[a]!.servedAt - waiting[b]!.servedAt || a - b)
  const prompts = order.filter((i) => !isWriting(waiting[i]!))
  let left = tokens
  const give = (i: number, most: number): number => {
    const count = Math.max(0, Math.min(waiting[i]!.tokens - taken[i]!, left, most))
    taken[i]! += count
    left -= count
    return count
  }
  // a prompt that has waited longer than a writer is not passed over: it gets a token
  for (const i of order) give(i, isWriting(waiting[i]!) ? Infinity : 1)
  let more = prompts.length < waiting.length ? chunk - prompts.length : Infinity
  for (const i of prompts) more -= give(i, more)
  return taken
}
