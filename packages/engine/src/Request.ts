/** What is asked of a model, and what comes back. */
import type { TokenizerError } from "@tg/tokenizer/TokenizerError"
import { Schema } from "effect"
import type { Constraint } from "./Constraint.ts"
import * as Sampler from "./Sampler.ts"
import type { StepError } from "./Session.ts"
import type { Drafts } from "./Speculation.ts"
import type * as Stop from "./Stop.ts"

/** A token and how likely the model took it to be. */
export interface Likelihood {
  readonly id: number
  /** Natural logarithm of the probability that the model's own logits give it, before anything of the request changes them. */
  readonly logprob: number
}

/** A generated token. */
export interface Token {
  readonly id: number
  /**
   * The text that is complete with this token. Maybe empty: part of a character, text that is held back because it may become a
   * stop string, or an end-of-generation token.
   */
  readonly text: string
  /** Set on the last token. */
  readonly stop: Stop.Reason | undefined
  /** Where `logprobs` were asked for. */
  readonly logprob?: number | undefined
  /** The likeliest tokens, the likeliest first, where more than none were asked for. */
  readonly top?: ReadonlyArray<Likelihood> | undefined
  /** On the last token, where a `Drafter` is in force: what became of its drafts. */
  readonly drafts?: Drafts | undefined
}

/** What makes tokens that are there already less likely. Absent parts change nothing. */
export interface Penalties {
  /** Taken from the logit of each token that was generated. */
  readonly presence?: number | undefined
  /** Taken from the logit of each token, once for each time it was generated. */
  readonly frequency?: number | undefined
  /** Positive logits of tokens of the prompt or the generation are divided by it, negative ones multiplied; 1 changes nothing. */
  readonly repeat?: number | undefined
  /** How many of the last tokens, of the prompt and the generation, `repeat` looks at; 64 if not given. */
  readonly lastTokens?: number | undefined
}

/** What to generate. */
export interface Request {
  /** The prompt. */
  readonly tokens: ReadonlyArray<number>
  /** End after this many tokens; without it, only the context ends a generation that the model does not end. */
  readonly maxTokens?: number | undefined
  /** Greedy by default. */
  readonly sampling?: Sampler.Settings | undefined
  /** The text ends before the first of these. */
  readonly stop?: ReadonlyArray<string> | undefined
  readonly penalties?: Penalties | undefined
  /** Added to the logits of these tokens. `-Infinity` forbids one. */
  readonly bias?: ReadonlyMap<number, number> | undefined
  /** Says how likely each token was, and so many of the likeliest at its place; 0 is that of the token alone. */
  readonly logprobs?: number | undefined
  /** Only what it allows is drawn. It is told the tokens, so it serves one generation. */
  readonly constraint?: Constraint | undefined
}

/** A request that makes no sense. */
export class InvalidRequest extends Schema.TaggedError<InvalidRequest>()("InvalidRequest", {
  /** The part of the request. */
  field: Schema.String,
  found: Schema.String,
  expected: Schema.String
}) {
  override get message(): string {
    return `${this.field} ${this.found} was asked; it has to be ${this.expected}`
  }
}

/** A constraint that allows no token, and no end either. */
export class NothingAllowed extends Schema.TaggedError<NothingAllowed>()("NothingAllowed", {
  /** Tokens in front of the place. */
  position: Schema.Finite
}) {
  override get message(): string {
    return `the constraint allows no token of this model after ${this.position} tokens, and no end; ` +
      `allow a text that the vocabulary can spell, or drop the constraint`
  }
}

/** Why a generation failed. */
export type EngineError = StepError | Sampler.InvalidSampling | InvalidRequest | NothingAllowed | TokenizerError

/** The first part of a request that makes no sense for a vocabulary, if any. Its tokens are checked by the session. */
export const validate = (
  request: Request,
  vocabulary: number
): Sampler.InvalidSampling | InvalidRequest | undefined => {
  const check = (field: string, value: number | undefined, isValid: (value: number) => boolean, expected: string) =>
    value === undefined || isValid(value) ? undefined : new InvalidRequest({ field, found: String(value), expected })
  const { bias, logprobs, penalties = {}, sampling = Sampler.greedy, stop = [] } = request
  const isCount = (value: number): boolean => Number.isInteger(value) && value >= 0
  const wrongBias = [...bias ?? []].find(([id, by]) => !(isCount(id) && id < vocabulary && by < Infinity))
  return Sampler.validate(sampling) ??
    (stop.includes("")
      ? new InvalidRequest({ field: "stop", found: "\"\"", expected: "text of a character or more" })
      : undefined) ??
    check("presence", penalties.presence, Number.isFinite, "a finite number (0 changes nothing)") ??
    check("frequency", penalties.frequency, Number.isFinite, "a finite number (0 changes nothing)") ??
    check("repeat", penalties.repeat, (x) => x > 0 && x < Infinity, "a number above 0 (1 changes nothing)") ??
    check("lastTokens", penalties.lastTokens, (x) => isCount(x) || x === Infinity, "an integer from 0 up") ??
    check("logprobs", logprobs, isCount, "an integer from 0 up (0 is that of the token alone)") ??
    (wrongBias === undefined ? undefined : new InvalidRequest({
      field: "bias",
      found: `${wrongBias[1]} for token ${wrongBias[0]}`,
      expected: `a number for one of the tokens 0 to ${vocabulary - 1}`
    }))
}

/** Whether the logits have to come to the host, before or after the draw. */
export const needsLogits = ({ bias, logprobs, penalties = {} }: Request): boolean =>
  logprobs !== undefined || (bias?.size ?? 0) > 0 ||
  (penalties.presence ?? 0) !== 0 || (penalties.frequency ?? 0) !== 0 || (penalties.repeat ?? 1) !== 1
