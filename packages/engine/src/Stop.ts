/** When a generation ends. */
import { Schema } from "effect"

/** `end`: the model said so, with an end-of-generation token. `length`: as many tokens as were asked for. */
export const Reason = Schema.Literals(["end", "length"])
/** Why a generation ended. */
export type Reason = typeof Reason.Type

/** What ends a generation. */
export interface Rules {
  readonly endTokens: ReadonlySet<number>
  readonly maxTokens: number
}

/** Whether a token ends the generation, the `count`-th of it, counted from 1. */
export const reasonOf = (id: number, count: number, rules: Rules): Reason | undefined =>
  rules.endTokens.has(id) ? "end" : count >= rules.maxTokens ? "length" : undefined
