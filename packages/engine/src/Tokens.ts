/** Lists of tokens, and how many of them a context holds. */
import type { ModelConfig } from "@tg/model-parts/Family"
import { Schema } from "effect"

/** More tokens than the session can hold. */
export class ContextFull extends Schema.TaggedError<ContextFull>()("ContextFull", {
  /** Tokens that would have to be in the session. */
  asked: Schema.Finite,
  limit: Schema.Finite,
  /** What the model was made for. */
  modelLimit: Schema.Finite
}) {
  override get message(): string {
    const more = this.limit < this.modelLimit ? `, raise the context (the model allows ${this.modelLimit})` : ""
    return `the context holds ${this.limit} ${
      this.limit === 1 ? "token" : "tokens"
    } and ${this.asked} were asked for; shorten the prompt or ask for ` +
      `fewer tokens${more}`
  }
}

/** A token id that the model does not have, or no token at all. */
export class InvalidTokens extends Schema.TaggedError<InvalidTokens>()("InvalidTokens", {
  message: Schema.String
}) {}

/** Length of the longest common prefix. */
export const commonPrefix = (a: ReadonlyArray<number>, b: ReadonlyArray<number>): number => {
  const most = Math.min(a.length, b.length)
  let n = 0
  while (n < most && a[n] === b[n]) n++
  return n
}

/** The context of a session that was not told one. */
export const defaultContext = 4096

/** The context a session gets: what was asked, inside of what the model allows. */
export const contextOf = (
  { contextLength: modelLimit }: Pick<ModelConfig, "contextLength">,
  asked: number | undefined
): number | ContextFull | InvalidTokens => {
  if (asked === undefined) return Math.min(modelLimit, defaultContext)
  if (!(Number.isSafeInteger(asked) && asked > 0)) {
    return new InvalidTokens({ message: `a context of ${asked} tokens was asked for; it has to be 1 or more` })
  }
  return asked > modelLimit ? new ContextFull({ asked, limit: modelLimit, modelLimit }) : asked
}

/** The first that is no token. A loop: `find` takes 0.15 ms for a prompt behind 16000 tokens, ten times as long. */
const badToken = (tokens: ReadonlyArray<number>, vocabulary: number): number | undefined => {
  for (let i = 0; i < tokens.length; i++) {
    const id = tokens[i]!
    if (!(Number.isInteger(id) && id >= 0 && id < vocabulary)) return id
  }
  return undefined
}

/** What is wrong with tokens that a session is to hold, if anything. */
export const invalid = (
  tokens: ReadonlyArray<number>,
  { contextLength: modelLimit, name, vocabulary }: Pick<ModelConfig, "contextLength" | "name" | "vocabulary">,
  context: number
): ContextFull | InvalidTokens | undefined => {
  if (tokens.length === 0) return new InvalidTokens({ message: "no token was given; a prompt has at least one" })
  const bad = badToken(tokens, vocabulary)
  if (bad !== undefined) {
    return new InvalidTokens({ message: `token ${bad} was given; ${name} has the tokens 0 to ${vocabulary - 1}` })
  }
  return tokens.length > context ? new ContextFull({ asked: tokens.length, limit: context, modelLimit }) : undefined
}
