/** From the body of a completion to what is generated, and how it is told. */
import { Clock, Effect, Random } from "effect"
import * as ApiError from "./ApiError.ts"
import { type Job, plain } from "./Answers.ts"
import { checkLength, checkText, clientOf, newId, type Place, tooManyChoices } from "./Chat.ts"
import type * as CompletionReply from "./CompletionReply.ts"
import type { CompletionRequest } from "./CompletionRequest.ts"
import * as Drawing from "./Drawing.ts"
import type { Served } from "./Served.ts"

/** A completion that can be answered. */
export interface Plan {
  readonly job: Job
  readonly head: CompletionReply.Head
}

/** Checks what the schema cannot, encodes the prompts, and says what is to be generated. */
export const plan = Effect.fn("Complete.plan")(
  function*(request: CompletionRequest, { client, limits, served }: Place) {
    const other = served.check(request.model)
    if (other !== undefined) return yield* other
    const { codec } = served
    const prompts = yield* promptsOf(request.prompt, served)
    const n = request.n ?? 1
    if (n * prompts.length > limits.choices) return yield* tooManyChoices(n * prompts.length, limits)
    const logprobs = request.logprobs ?? undefined
    if (request.echo === true && logprobs !== undefined) {
      return yield* ApiError.invalid("echo with logprobs is not supported: prompts have no likelihoods here", {
        param: "echo",
        code: "unsupported_parameter"
      })
    }
    const vocabulary = codec.vocabulary.tokens.length
    const seed = yield* Random.nextIntBetween(0, 2 ** 32)
    // OpenAI ends a completion after 16 tokens where nothing is said
    const fields = { ...request, max_tokens: request.max_tokens ?? 16 }
    const drawing = yield* Effect.fromResult(Drawing.of(fields, { logprobs, seed, vocabulary }))
    const job: Job = {
      client: clientOf(client, request.user),
      requests: prompts.flatMap((tokens) =>
        Array.from({ length: n }, (_, i) => () => ({ ...Drawing.another(drawing, i), tokens }))
      ),
      param: "prompt",
      reader: plain
    }
    const head: CompletionReply.Head = {
      id: `cmpl-${yield* newId}`,
      created: Math.floor((yield* Clock.currentTimeMillis) / 1000),
      model: served.id,
      codec,
      logprobs: logprobs !== undefined,
      answers: n,
      echo: request.echo === true ? prompts.map((tokens) => codec.decode(tokens)) : undefined
    }
    return { job, head } satisfies Plan
  }
)

const isIds = (prompt: ReadonlyArray<unknown>): prompt is ReadonlyArray<number> => typeof prompt[0] === "number"

/** The tokens of each prompt. */
const promptsOf = Effect.fnUntraced(function*(prompt: CompletionRequest["prompt"], served: Served["Service"]) {
  const { codec } = served
  const all: ReadonlyArray<string | ReadonlyArray<number>> = typeof prompt === "string" || isIds(prompt)
    ? [prompt]
    : prompt
  const encoded: Array<ReadonlyArray<number>> = []
  for (const one of all) {
    if (typeof one === "string") {
      const tooLong = checkText(one.length, served, "prompt")
      if (tooLong !== undefined) return yield* tooLong
    }
    const tokens = typeof one === "string" ? codec.encode(one, { addSpecial: true, parseSpecial: true }) : one
    if (tokens.length === 0) {
      return yield* ApiError.invalid("prompt is empty; give a text or token ids", { param: "prompt" })
    }
    const unknown = tokens.find((id) => id >= codec.vocabulary.tokens.length)
    if (unknown !== undefined) {
      return yield* ApiError.invalid(`prompt: ${unknown} is no token of this model`, { param: "prompt" })
    }
    const tooLong = checkLength(tokens.length, served, "prompt")
    if (tooLong !== undefined) return yield* tooLong
    encoded.push(tokens)
  }
  return encoded
})
