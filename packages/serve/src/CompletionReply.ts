/** Answers of a completion in OpenAI's form: chunks as they come, or one value. */
import type { Token } from "@tg/engine/Engine"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Schema } from "effect"
import type { Event } from "./Answers.ts"
import * as Usage from "./Usage.ts"

const Logprobs = Schema.NullOr(Schema.Struct({
  tokens: Schema.Array(Schema.String),
  // @effect-diagnostics-next-line schemaNumber:off
  token_logprobs: Schema.Array(Schema.Number),
  // @effect-diagnostics-next-line schemaNumber:off
  top_logprobs: Schema.Array(Schema.Record(Schema.String, Schema.Number)),
  /** Where in the answer's text the token begins, as far as it prints whole characters. */
  text_offset: Schema.Array(Schema.Int)
}))

const Choice = Schema.Struct({
  index: Schema.Int,
  text: Schema.String,
  logprobs: Logprobs,
  finish_reason: Schema.NullOr(Schema.Literals(["stop", "length"]))
})
type Choice = typeof Choice.Type

/** The answer to a completion, or a piece of it. */
export const Completion = Schema.Struct({
  id: Schema.String,
  object: Schema.Literal("text_completion"),
  created: Schema.Int,
  model: Schema.String,
  choices: Schema.Array(Choice),
  usage: Schema.optional(Schema.NullOr(Usage.Usage))
}).annotate({ identifier: "Completion" })
/** The answer to a completion, or a piece of it. */
export type Completion = typeof Completion.Type

/** What all pieces of an answer say, and how it is read. */
export interface Head {
  readonly id: string
  readonly created: number
  readonly model: string
  readonly codec: Codec
  readonly logprobs: boolean
  /** Answers to each prompt. */
  readonly answers: number
  /** The prompts that answers begin with, where they were asked for. */
  readonly echo: ReadonlyArray<string> | undefined
}

/** Turns events into choices. */
export const make = (head: Head) => {
  const usage = Usage.counter({ answers: head.answers, endTokens: head.codec.vocabulary.eog })
  let offset = 0
  let stop: Token["stop"]
  const push = (event: Event): ReadonlyArray<Choice> => {
    usage.push(event, false)
    const { index } = event
    if (event.type === "begin") {
      const text = head.echo?.[Math.floor(index / head.answers)] ?? ""
      offset = text.length
      stop = undefined
      return text === "" ? [] : [{ index, text, logprobs: null, finish_reason: null }]
    }
    const text = event.parts.map((part) => part.type === "text" ? part.text : "").join("")
    const at = offset
    offset += text.length
    if (event.type === "token") {
      stop = event.token.stop
      const logprobs = head.logprobs && !head.codec.vocabulary.eog.has(event.token.id)
        ? logprobsOf(event.token, at, head.codec)
        : null
      return text === "" && logprobs === null ? [] : [{ index, text, logprobs, finish_reason: null }]
    }
    const finish_reason = stop === "length" || stop === "context" ? "length" : "stop"
    return [{ index, text, logprobs: null, finish_reason }]
  }
  return { push, usage: usage.usage }
}

const logprobsOf = ({ id, logprob, top = [] }: Token, offset: number, codec: Codec): typeof Logprobs.Type => {
  const textOf = (token: number) => codec.decode([token], { printSpecial: true })
  return {
    tokens: [textOf(id)],
    token_logprobs: [Math.max(logprob ?? -9999, -9999)],
    top_logprobs: [Object.fromEntries(top.map((other) => [textOf(other.id), Math.max(other.logprob, -9999)]))],
    text_offset: [offset]
  }
}

/** The value of some choices. */
export const chunk = (
  { created, id, model }: Head,
  choices: ReadonlyArray<Choice>,
  usage: Usage.Usage | null | undefined
): Completion => ({
  id,
  object: "text_completion",
  created,
  model,
  choices,
  ...(usage === undefined ? {} : { usage })
})

/** Puts the choices of chunks together. */
export const collect = (head: Head, choices: ReadonlyArray<Choice>, usage: Usage.Usage): Completion => {
  const byIndex = Map.groupBy(choices, ({ index }) => index)
  const whole = [...byIndex].map(([index, pieces]): Choice => {
    const all = pieces.flatMap(({ logprobs }) => logprobs === null ? [] : [logprobs])
    return {
      index,
      text: pieces.map(({ text }) => text).join(""),
      logprobs: head.logprobs
        ? {
          tokens: all.flatMap(({ tokens }) => tokens),
          token_logprobs: all.flatMap(({ token_logprobs }) => token_logprobs),
          top_logprobs: all.flatMap(({ top_logprobs }) => top_logprobs),
          text_offset: all.flatMap(({ text_offset }) => text_offset)
        }
        : null,
      finish_reason: pieces.at(-1)?.finish_reason ?? "stop"
    }
  })
  return chunk(head, whole, usage)
}
