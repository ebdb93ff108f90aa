/** The body of `POST /v1/completions`. */
import { Schema } from "effect"
import { drawing, given } from "./ChatRequest.ts"

const Ids = Schema.NonEmptyArray(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)))

/** The body of `POST /v1/completions`. */
export const CompletionRequest = Schema.Struct({
  ...drawing,
  /** A text, token ids, or several of either. Special tokens may be written out. */
  prompt: Schema.Union([Schema.String, Schema.NonEmptyArray(Schema.String), Ids, Schema.NonEmptyArray(Ids)]),
  /** How many of the likeliest tokens to report with each token. */
  logprobs: given(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 20 }))),
  /** Whether the answer begins with the prompt. */
  echo: given(Schema.Boolean)
}).annotate({ identifier: "CreateCompletionRequest" })
/** The body of `POST /v1/completions`. */
export type CompletionRequest = typeof CompletionRequest.Type
