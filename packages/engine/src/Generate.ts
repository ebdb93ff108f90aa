/** From a request to tokens: the loop around a session's steps. */
import * as Decoder from "@tg/tokenizer/Decoder"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Effect, Stream } from "effect"
import { isNone } from "./Constraint.ts"
import * as Random from "./Random.ts"
import { type EngineError, needsLogits, NothingAllowed, type Request, type Token, validate } from "./Request.ts"
import * as Sampler from "./Sampler.ts"
import type { Session } from "./Session.ts"
import * as Shaping from "./Shaping.ts"
import * as Speculation from "./Speculation.ts"
import * as Stop from "./Stop.ts"
import * as StopText from "./StopText.ts"

/** As much of a session as a generation needs. */
export type Stepping = Pick<Session, "context" | "vocabulary" | "sampler" | "advance" | "next">

/** A token that was drawn, and what is known of it. */
type Drawn = Pick<Token, "id" | "logprob" | "top">

/** Draws what follows the tokens. */
type Draw = (tokens: ReadonlyArray<number>) => Effect.Effect<Drawn, EngineError>

/** How tokens are drawn for a request: by the session, or here, where the logits are needed. */
const drawOf = (session: Stepping, request: Request): Draw => {
  const { constraint, logprobs, sampling = Sampler.greedy } = request
  const isOnHost = needsLogits(request)
  return Effect.fnUntraced(function*(tokens) {
    const mask = constraint?.mask()
    if (mask !== undefined && isNone(mask, session.vocabulary)) {
      return yield* new NothingAllowed({ position: tokens.length })
    }
    if (!isOnHost) return { id: yield* session.next(tokens, sampling, mask) }
    const logits = yield* session.advance(tokens)
    const row = Shaping.shape(logits, request, { tokens, prompt: request.tokens.length, mask })
    const id = session.sampler.sample(row, sampling, Random.words(sampling.seed, tokens.length))
    if (id === undefined) {
      return yield* new Sampler.InvalidLogits({ position: tokens.length - 1, vocab: row.length, bad: 0 })
    }
    if (logprobs === undefined) return { id }
    const { logprob, top } = Shaping.likelihoods(logits, id, logprobs)
    return { id, logprob, ...(logprobs === 0 ? {} : { top }) }
  })
}

/**
 * Tokens that follow the prompt, until a rule stops them. With a speculation, steps verify drafts; the tokens are the same.
 */
export const generate = (
  session: Stepping & Speculation.Steps,
  { codec, request, speculation }: {
    readonly codec: Codec
    readonly request: Request
    readonly speculation: Speculation.Speculation | undefined
  }
): Stream.Stream<Token, EngineError> =>
  speculation === undefined ? tokensOf(session, codec, request) : Stream.suspend(() => {
    const most = request.tokens.length + (request.maxTokens ?? Infinity)
    const drafting = Speculation.over(session, speculation, { most, sampling: request.sampling })
    return tokensOf(drafting, codec, request).pipe(
      Stream.map((token) => token.stop === undefined ? token : { ...token, drafts: drafting.drafts() }),
      Stream.ensuring(drafting.end)
    )
  })

/** Tokens that follow the prompt, one step after the other. */
const tokensOf = (session: Stepping, codec: Codec, request: Request): Stream.Stream<Token, EngineError> =>
  Stream.suspend(() => {
    const invalid = validate(request, session.vocabulary)
    if (invalid !== undefined) return Stream.fail(invalid)
    const { constraint, maxTokens = Infinity } = request
    if (maxTokens < 1 || constraint?.isFinished() === true) return Stream.empty
    const rules: Stop.Rules = {
      endTokens: codec.vocabulary.eog,
      maxTokens,
      room: session.context - request.tokens.length
    }
    const draw = drawOf(session, request)
    const decoder = Decoder.make(codec)
    const watch = StopText.make(request.stop ?? [])
    const textOf = (id: number, isLast: boolean) => {
      const piece = (rules.endTokens.has(id) ? "" : decoder.push(id)) + (isLast ? decoder.flush() : "")
      const { isStopped, text } = watch.push(piece)
      return { isStopped, text: isLast && !isStopped ? text + watch.flush() : text }
    }
    return Stream.unfold<ReadonlyArray<number> | undefined, Token, EngineError, never>(
      request.tokens,
      Effect.fnUntraced(function*(tokens) {
        if (tokens === undefined) return undefined
        const drawn = yield* draw(tokens)
        const { id } = drawn
        if (!rules.endTokens.has(id)) constraint?.accept(id)
        const ruled = constraint?.isFinished() === true
          ? "end"
          : Stop.reasonOf(id, tokens.length - request.tokens.length + 1, rules)
        const { isStopped, text } = textOf(id, ruled !== undefined)
        const stop = isStopped ? "text" : ruled
        return [{ ...drawn, text, stop }, stop === undefined ? [...tokens, id] : undefined] as const
      })
    )
  })
