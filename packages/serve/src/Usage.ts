/** How many tokens a request took. */
import { Schema } from "effect"
import type { Event } from "./Answers.ts"

/** Tokens of a request. */
export const Usage = Schema.Struct({
  prompt_tokens: Schema.Int,
  completion_tokens: Schema.Int,
  total_tokens: Schema.Int,
  prompt_tokens_details: Schema.Struct({
    /** Tokens of the prompt that were in a cache. */
    cached_tokens: Schema.Int
  }),
  completion_tokens_details: Schema.Struct({
    reasoning_tokens: Schema.Int,
    /** Tokens that were drafted and right, where drafts are made. */
    accepted_prediction_tokens: Schema.optionalKey(Schema.Int),
    /** Those that were drafted and wrong. */
    rejected_prediction_tokens: Schema.optionalKey(Schema.Int)
  })
}).annotate({ identifier: "Usage" })
/** Tokens of a request. */
export type Usage = typeof Usage.Type

/** Counts tokens. A prompt that several answers share counts once; tokens that only end an answer do not count. */
export const counter = ({ answers, endTokens }: {
  /** Answers to each prompt. */
  readonly answers: number
  readonly endTokens: ReadonlySet<number>
}) => {
  let prompt = 0
  let cached = 0
  let completion = 0
  let reasoning = 0
  let predicted: { readonly accepted: number; readonly rejected: number } | undefined
  return {
    push: (event: Event, isReasoning: boolean): void => {
      if (event.type === "begin" && event.index % answers === 0) {
        prompt += event.promptTokens
        cached += event.cachedTokens
      }
      if (event.type === "token" && event.token.drafts !== undefined) {
        const { accepted, drafted } = event.token.drafts
        predicted = {
          accepted: (predicted?.accepted ?? 0) + accepted,
          rejected: (predicted?.rejected ?? 0) + drafted - accepted
        }
      }
      if (event.type !== "token" || endTokens.has(event.token.id)) return
      completion++
      if (isReasoning) reasoning++
    },
    usage: (): Usage => ({
      prompt_tokens: prompt,
      completion_tokens: completion,
      total_tokens: prompt + completion,
      prompt_tokens_details: { cached_tokens: cached },
      completion_tokens_details: {
        reasoning_tokens: reasoning,
        ...(predicted !== undefined && {
          accepted_prediction_tokens: predicted.accepted,
          rejected_prediction_tokens: predicted.rejected
        })
      }
    })
  }
}
