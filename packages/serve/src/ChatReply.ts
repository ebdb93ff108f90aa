/** Answers of a chat in OpenAI's form: chunks as they come, or one value. */
import type { Part } from "@tg/dialogue/Reply"
import type { Token } from "@tg/engine/Engine"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Schema } from "effect"
import type { Event } from "./Answers.ts"
import * as Usage from "./Usage.ts"

const Likelihood = Schema.Struct({
  token: Schema.String,
  // @effect-diagnostics-next-line schemaNumber:off
  logprob: Schema.Number,
  bytes: Schema.NullOr(Schema.Array(Schema.Int))
})

const TokenLikelihood = Schema.Struct({ ...Likelihood.fields, top_logprobs: Schema.Array(Likelihood) })
type TokenLikelihood = typeof TokenLikelihood.Type

const Logprobs = Schema.NullOr(Schema.Struct({
  content: Schema.NullOr(Schema.Array(TokenLikelihood)),
  refusal: Schema.Null
}))

const FinishReason = Schema.Literals(["stop", "length", "tool_calls"])

const ToolCall = Schema.Struct({
  id: Schema.String,
  type: Schema.Literal("function"),
  function: Schema.Struct({ name: Schema.String, arguments: Schema.String })
})

const Message = Schema.Struct({
  role: Schema.Literal("assistant"),
  content: Schema.NullOr(Schema.String),
  refusal: Schema.Null,
  reasoning_content: Schema.optional(Schema.String),
  tool_calls: Schema.optional(Schema.Array(ToolCall))
})

/** The answer to a chat. */
export const ChatCompletion = Schema.Struct({
  id: Schema.String,
  object: Schema.Literal("chat.completion"),
  created: Schema.Int,
  model: Schema.String,
  choices: Schema.Array(Schema.Struct({
    index: Schema.Int,
    message: Message,
    logprobs: Logprobs,
    finish_reason: FinishReason
  })),
  usage: Usage.Usage
}).annotate({ identifier: "ChatCompletion" })
/** The answer to a chat. */
export type ChatCompletion = typeof ChatCompletion.Type

const Delta = Schema.Struct({
  role: Schema.optional(Schema.Literal("assistant")),
  content: Schema.optional(Schema.String),
  reasoning_content: Schema.optional(Schema.String),
  tool_calls: Schema.optional(Schema.Array(Schema.Struct({
    index: Schema.Int,
    id: Schema.optional(Schema.String),
    type: Schema.optional(Schema.Literal("function")),
    function: Schema.Struct({ name: Schema.optional(Schema.String), arguments: Schema.optional(Schema.String) })
  })))
})
type Delta = typeof Delta.Type

/** A piece of the answer to a chat. */
export const ChatChunk = Schema.Struct({
  id: Schema.String,
  object: Schema.Literal("chat.completion.chunk"),
  created: Schema.Int,
  model: Schema.String,
  choices: Schema.Array(Schema.Struct({
    index: Schema.Int,
    delta: Delta,
    logprobs: Logprobs,
    finish_reason: Schema.NullOr(FinishReason)
  })),
  /** In the last piece, where it was asked for; `null` in the others then. */
  usage: Schema.optional(Schema.NullOr(Usage.Usage))
}).annotate({ identifier: "ChatCompletionChunk" })
/** A piece of the answer to a chat. */
export type ChatChunk = typeof ChatChunk.Type

type Choice = ChatChunk["choices"][number]

/** What all pieces of an answer say, and how it is read. */
export interface Head {
  readonly id: string
  readonly created: number
  readonly model: string
  readonly codec: Codec
  /** Whether the prompt leaves the model thinking. */
  readonly thinkingOpen: boolean
  readonly logprobs: boolean
  readonly answers: number
}

/** What became of one answer so far. */
interface State {
  /** What the last part was. */
  place: Part["type"]
  hasCalls: boolean
  stop: Token["stop"]
  /** Likelihoods of tokens whose text is not certain yet. */
  pending: Array<TokenLikelihood>
}

/** Turns events into choices of chunks. */
export const make = (head: Head) => {
  const usage = Usage.counter({ answers: head.answers, endTokens: head.codec.vocabulary.eog })
  const fresh = (): State => ({
    place: head.thinkingOpen ? "reasoning" : "text",
    hasCalls: false,
    stop: undefined,
    pending: []
  })
  let state = fresh()

  const deltaOf = (part: Part): Delta | undefined => {
    switch (part.type) {
      case "text":
        return { content: part.text }
      case "reasoning":
        return { reasoning_content: part.text }
      case "tool-start": {
        const { index, name } = part
        return {
          tool_calls: [{ index, id: callId(head.id, index), type: "function", function: { name, arguments: "" } }]
        }
      }
      case "tool-arguments":
        return { tool_calls: [{ index: part.index, function: { arguments: part.text } }] }
      case "tool-end":
        return undefined
    }
  }

  /** The likelihoods that belong to these parts: those of tokens that became text. */
  const likelihoods = (parts: ReadonlyArray<Part>): ReadonlyArray<TokenLikelihood> => {
    if (parts.length === 0) return []
    const taken = state.pending
    state.pending = []
    return parts.some(({ type }) => type === "text") ? taken : []
  }

  const choices = (index: number, parts: ReadonlyArray<Part>): ReadonlyArray<Choice> => {
    let logprobs = head.logprobs ? likelihoods(parts) : []
    return parts.flatMap((part): ReadonlyArray<Choice> => {
      state.place = part.type
      if (part.type === "tool-start") state.hasCalls = true
      const delta = deltaOf(part)
      if (delta === undefined) return []
      const content = part.type === "text" ? logprobs : []
      if (part.type === "text") logprobs = []
      return [{ index, delta, logprobs: head.logprobs ? { content, refusal: null } : null, finish_reason: null }]
    })
  }

  const push = (event: Event): ReadonlyArray<Choice> => {
    if (event.type === "begin") state = fresh()
    const before = state.place
    const made = ((): ReadonlyArray<Choice> => {
      const { index } = event
      switch (event.type) {
        case "begin":
          return [{ index, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }]
        case "token": {
          const { token } = event
          state.stop = token.stop
          if (head.logprobs && !head.codec.vocabulary.eog.has(token.id)) {
            state.pending.push(likelihoodOf(token, head.codec))
          }
          return choices(index, event.parts)
        }
        case "end":
          return [...choices(index, event.parts), {
            index,
            delta: {},
            logprobs: null,
            finish_reason: finishReason(state)
          }]
      }
    })()
    usage.push(event, before === "reasoning")
    return made
  }
  return { push, usage: usage.usage }
}

const finishReason = ({ hasCalls, stop }: State): typeof FinishReason.Type =>
  hasCalls ? "tool_calls" : stop === "length" || stop === "context" ? "length" : "stop"

/** A call's id: that of the answer, and its place in it. */
export const callId = (id: string, index: number): string => `call_${id.replace(/^.*-/, "")}_${index}`

const likelihoodOf = ({ id, logprob, top = [] }: Token, codec: Codec): TokenLikelihood => ({
  ...named({ id, logprob: logprob ?? -9999 }, codec),
  top_logprobs: top.map((likelihood) => named(likelihood, codec))
})

// JSON has no -Infinity: OpenAI says -9999 for what never comes
const named = ({ id, logprob }: { readonly id: number; readonly logprob: number }, codec: Codec) => {
  const bytes = codec.bytesOf(id, { printSpecial: true })
  return { token: new TextDecoder().decode(bytes), logprob: Math.max(logprob, -9999), bytes: [...bytes] }
}

/** The chunk of a choice. */
export const chunk = (
  { created, id, model }: Head,
  choices: ReadonlyArray<Choice>,
  usage: Usage.Usage | null | undefined
): ChatChunk => ({
  id,
  object: "chat.completion.chunk",
  created,
  model,
  choices,
  ...(usage === undefined ? {} : { usage })
})

/** Puts the choices of chunks together. */
export const collect = (head: Head, choices: ReadonlyArray<Choice>, usage: Usage.Usage): ChatCompletion => {
  const byIndex = Map.groupBy(choices, ({ index }) => index)
  return {
    id: head.id,
    object: "chat.completion",
    created: head.created,
    model: head.model,
    choices: [...byIndex].map(([index, pieces]) => ({
      index,
      message: messageOf(head.id, pieces.map(({ delta }) => delta)),
      logprobs: head.logprobs
        ? { content: pieces.flatMap(({ logprobs }) => logprobs?.content ?? []), refusal: null }
        : null,
      finish_reason: pieces.at(-1)?.finish_reason ?? "stop"
    })),
    usage
  }
}

const messageOf = (id: string, deltas: ReadonlyArray<Delta>): typeof Message.Type => {
  const content = deltas.map((delta) => delta.content ?? "").join("")
  const reasoning = deltas.map((delta) => delta.reasoning_content ?? "").join("")
  const calls = Map.groupBy(deltas.flatMap((delta) => delta.tool_calls ?? []), ({ index }) => index)
  return {
    role: "assistant",
    content: content === "" && calls.size > 0 ? null : content,
    refusal: null,
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
    ...(calls.size === 0 ? {} : {
      tool_calls: [...calls].map(([index, pieces]) => ({
        id: callId(id, index),
        type: "function",
        function: {
          name: pieces.map((piece) => piece.function.name ?? "").join(""),
          arguments: pieces.map((piece) => piece.function.arguments ?? "").join("")
        }
      }))
    })
  }
}
