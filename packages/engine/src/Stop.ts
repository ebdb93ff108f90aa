/** When a generation ends. */
import { Schema } from "effect"

/**
 * `end`: the model said so, with an end-of-generation token, or a constraint, behind which nothing else may come. `length`: as
 * many tokens as were asked for. `text`: a stop string. `context`: there is no place for the token, so none after it.
 */
export const Reason = Schema.Literals(["end", "length", "text", "context"])
/** Why a generation ended. */
export type Reason = typeof Reason.Type

/** What ends a generation. */
export interface Rules {
  readonly endTokens: ReadonlySet<number>
  readonly maxTokens: number
  /** Tokens that the context has place for behind the prompt; a step has to hold a token to give the next. */
  readonly room: number
}

/** Whether a token ends the generation, the `count`-th of it, counted from 1. */
export const reasonOf = (id: number, count: number, rules: Rules): Reason | undefined => {
  if (rules.endTokens.has(id)) return "end"
  if (count >= rules.maxTokens) return "length"
  return count > rules.room ? "context" : undefined
}
