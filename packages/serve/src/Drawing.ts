/** From the fields that chats and completions share to a request of the engine. */
import type { Request } from "@tg/engine/Engine"
import type { Settings } from "@tg/engine/Sampler"
import { Result } from "effect"
import * as ApiError from "./ApiError.ts"
import type { ChatRequest } from "./ChatRequest.ts"

/** The fields that say how to draw and when to end. */
export type Fields = Pick<
  ChatRequest,
  | "temperature"
  | "top_p"
  | "top_k"
  | "min_p"
  | "seed"
  | "presence_penalty"
  | "frequency_penalty"
  | "repeat_penalty"
  | "logit_bias"
  | "stop"
  | "max_tokens"
  | "max_completion_tokens"
>

/** How an answer is drawn: everything but the prompt. `seed` is used where the client gives none. */
export const of = (
  fields: Fields,
  { logprobs, seed, vocabulary }: {
    readonly logprobs: number | undefined
    readonly seed: number
    readonly vocabulary: number
  }
): Result.Result<Omit<Request, "tokens">, ApiError.ApiError> =>
  Result.map(biasOf(fields.logit_bias ?? {}, vocabulary), (bias) => ({
    maxTokens: fields.max_completion_tokens ?? fields.max_tokens ?? undefined,
    sampling: samplingOf(fields, seed),
    stop: typeof fields.stop === "string" ? [fields.stop] : fields.stop ?? [],
    penalties: {
      presence: fields.presence_penalty ?? 0,
      frequency: fields.frequency_penalty ?? 0,
      repeat: fields.repeat_penalty ?? 1
    },
    bias,
    logprobs
  }))

// no part of the likeliest tokens has a probability of 0: the likeliest alone comes nearest
const samplingOf = ({ min_p, seed, temperature, top_k, top_p }: Fields, other: number): Settings => ({
  temperature: temperature ?? 1,
  topK: top_p === 0 ? 1 : top_k ?? 0,
  topP: top_p === 0 ? 1 : top_p ?? 1,
  minP: min_p ?? 0,
  seed: seed ?? other
})

/** The same way to draw for another of several answers. */
export const another = (request: Omit<Request, "tokens">, index: number): Omit<Request, "tokens"> => {
  const { sampling } = request
  if (sampling === undefined || index === 0) return request
  return { ...request, sampling: { ...sampling, seed: (sampling.seed + index) % Number.MAX_SAFE_INTEGER } }
}

const biasOf = (
  bias: Readonly<Record<string, number>>,
  vocabulary: number
): Result.Result<ReadonlyMap<number, number>, ApiError.ApiError> => {
  const entries = Object.entries(bias)
  const wrong = entries.find(([id]) => !/^\d{1,9}$/.test(id) || Number(id) >= vocabulary)
  return wrong === undefined
    ? Result.succeed(new Map(entries.map(([id, by]) => [Number(id), by])))
    : Result.fail(
      ApiError.invalid(`logit_bias: ${wrong[0].slice(0, 40)} is no token id; they go from 0 to ${vocabulary - 1}`, {
        param: "logit_bias",
        code: "invalid_value"
      })
    )
}
