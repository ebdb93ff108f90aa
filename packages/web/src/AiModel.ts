/** A model of the page as Effect's `LanguageModel`: text and thinking, without tools and without schemas. */
import { Effect, Layer, Stream } from "effect"
import { AiError, IdGenerator, LanguageModel, type Prompt, type Response } from "effect/ai"
import type { ChatOptions, Model, Options, Source } from "./Model.ts"
import { load } from "./Model.ts"
import type { ModelError } from "./ModelError.ts"
import type { Piece } from "./Protocol.ts"

type Part = Response.StreamPartEncoded

const invalid = (parameter: string, description: string): AiError.AiError =>
  AiError.make({
    module: "@tg/web",
    method: "generateText",
    reason: new AiError.InvalidRequestError({ parameter, description })
  })

const asked = new Set(["InvalidRequest", "InvalidSampling", "ContextFull", "TemplateFailed", "MessageDropped"])

const failed = ({ message: description, reason }: ModelError): AiError.AiError =>
  asked.has(reason)
    ? invalid("prompt", description)
    : AiError.make({
      module: "@tg/web",
      method: "generateText",
      reason: new AiError.InternalProviderError({ description })
    })

/** What was said: what the model thought is not told again. */
const textOf = (message: Exclude<Prompt.Message, Prompt.SystemMessage>): string | AiError.AiError => {
  const parts: ReadonlyArray<Prompt.Part> = message.content
  const other = parts.find(({ type }) => type !== "text" && type !== "reasoning")
  return other === undefined
    ? parts.flatMap((part) => part.type === "text" ? [part.text] : []).join("")
    : invalid("prompt", `a part of type ${other.type} was given; a model of a page reads text alone`)
}

/** The messages of a prompt. */
const messagesOf = Effect.fnUntraced(function*(prompt: Prompt.Prompt) {
  const messages: Array<{ readonly role: string; readonly content: string }> = []
  for (const message of prompt.content) {
    const content = message.role === "system" ? message.content : textOf(message)
    if (typeof content !== "string") return yield* content
    messages.push({ role: message.role, content })
  }
  return messages
})

/** Pieces of a reply as parts, each section with a start and an end. */
const writer = (ids: IdGenerator.Service) => {
  let open: { readonly type: "text" | "reasoning"; readonly id: string } | undefined
  const close = (): ReadonlyArray<Part> => {
    const last = open
    open = undefined
    return last === undefined ? [] : [{ type: `${last.type}-end`, id: last.id }]
  }
  return Effect.fnUntraced(function*(piece: Piece): Effect.fn.Return<ReadonlyArray<Part>> {
    if (piece.type === "done") {
      const { answerTokens, cachedTokens, ending, promptTokens } = piece
      const usage = {
        inputTokens: { total: promptTokens, uncached: promptTokens - cachedTokens, cacheRead: cachedTokens },
        outputTokens: { total: answerTokens }
      }
      return [...close(), { type: "finish", reason: ending === "length" ? "length" : "stop", usage }]
    }
    const { text: delta, type } = piece
    const ended = open?.type === type ? [] : close()
    const section = open ?? { type, id: yield* ids.generateId() }
    const started: ReadonlyArray<Part> = open === undefined ? [{ type: `${type}-start`, id: section.id }] : []
    open = section
    return [...ended, ...started, { type: `${type}-delta`, id: section.id, delta }]
  })
}

/** Streamed parts as those of a whole answer. */
const collect = (parts: Iterable<Part>): Array<Response.PartEncoded> => {
  const whole: Array<Response.PartEncoded> = []
  let text = ""
  for (const part of parts) {
    if (part.type === "text-delta" || part.type === "reasoning-delta") text += part.delta
    else if (part.type === "text-end" || part.type === "reasoning-end") {
      whole.push({ type: part.type === "text-end" ? "text" : "reasoning", text })
      text = ""
    } else if (part.type === "finish") whole.push(part)
  }
  return whole
}

/** The language model of a model that is loaded; `options` are those of all its answers. */
export const make = (
  { reply }: Pick<Model, "reply">,
  options: ChatOptions = {}
): Effect.Effect<LanguageModel.LanguageModel> => {
  const answer = Effect.fnUntraced(function*({ prompt, responseFormat, tools }: LanguageModel.ProviderOptions) {
    if (tools.length > 0) return yield* invalid("tools", "a model of a page calls no tools; leave them out")
    if (responseFormat.type === "json") {
      return yield* invalid("schema", "a model of a page is held to no schema; ask for text")
    }
    const messages = yield* messagesOf(prompt)
    const write = writer(yield* IdGenerator.IdGenerator)
    return reply(messages, options).pipe(
      Stream.mapError(failed),
      Stream.mapEffect(write),
      Stream.flatMap(Stream.fromIterable)
    )
  })
  const streamText = (given: LanguageModel.ProviderOptions) => Stream.unwrap(answer(given))
  return LanguageModel.make({
    streamText,
    generateText: (given) => Effect.map(Stream.runCollect(streamText(given)), collect),
    supportsSystemMessagesInHistory: Effect.succeed(true)
  })
}

/** Loads a model into a worker of its own, as a language model; both go with the scope. */
export const layer = (
  source: Source,
  { answers, ...options }: Options & { readonly answers?: ChatOptions | undefined } = {}
): Layer.Layer<LanguageModel.LanguageModel, ModelError> =>
  Layer.effect(LanguageModel.LanguageModel, Effect.flatMap(load(source, options), (model) => make(model, answers)))
