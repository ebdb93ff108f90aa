/** From what was asked to the token ids of a prompt. */
import type { ModelFile } from "@tg/engine/ModelFile"
import type * as ChatTemplate from "@tg/tokenizer/ChatTemplate"
import { droppedMessage } from "@tg/tokenizer/Dropped"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Clock, Effect, Schema } from "effect"
import { UsageError } from "./Report.ts"

/** A message of a conversation. Templates may use further fields. */
export const Message = Schema.StructWithRest(Schema.Struct({ role: Schema.String, content: Schema.String }), [
  Schema.Record(Schema.String, Schema.Unknown)
])
/** A message of a conversation. */
export type Message = typeof Message.Type

/** A conversation: the content of a file of messages. */
export const Messages = Schema.Array(Message)

/** What was asked. */
export interface Asked {
  readonly prompt: string | undefined
  readonly messages: ReadonlyArray<Message> | undefined
  readonly system: string | undefined
  readonly raw: boolean
}

/** The conversation that is asked for: the system text, the messages of the file, the prompt as the user's last word. */
export const conversation = ({ messages, prompt, system }: Asked): ReadonlyArray<Message> | UsageError => {
  const all = [
    ...(system === undefined ? [] : [{ role: "system", content: system }]),
    ...(messages ?? []),
    ...(prompt === undefined ? [] : [{ role: "user", content: prompt }])
  ]
  if (messages === undefined && prompt === undefined) {
    return new UsageError({
      message: "there is nothing to answer; give a prompt, or a conversation with --messages FILE"
    })
  }
  if (!all.some((m) => m.role !== "system")) {
    return new UsageError({ message: "the conversation has no message to answer; add one, or give a prompt" })
  }
  if (system !== undefined && messages?.[0]?.role === "system") {
    return new UsageError({
      message: "--system is given, and the messages begin with a system message; keep one of them"
    })
  }
  return all
}

/** What looking for messages that a template drops may take: where it takes longer, nothing is known. */
const lookingMillis = 3000

/** Tokens of a conversation, by the model's chat template. */
export const chatTokens = Effect.fn("Prompt.chatTokens")(function*(
  { codec, template: own }: ModelFile,
  conversation: { readonly messages: ReadonlyArray<Message>; readonly thinking: boolean }
) {
  const template = yield* Effect.fromResult(own)
  const { messages, thinking } = conversation
  const now = new Date(yield* Clock.currentTimeMillis)
  const render = (messages: ReadonlyArray<ChatTemplate.Message>, limit?: ChatTemplate.Limit) =>
    template.render({ messages, variables: { enable_thinking: thinking } }, now, limit)
  const prompt = yield* Effect.fromResult(render(messages))
  const until = Date.now() + lookingMillis
  const dropped = droppedMessage(messages, (messages) => render(messages, { until }))
  if (dropped !== undefined) return yield* dropped
  return codec.encodeSegments(prompt.segments)
})

/** Tokens of a text as it is. Special tokens may be written out. */
export const rawTokens = (codec: Codec, text: string): ReadonlyArray<number> =>
  codec.encode(text, { addSpecial: true, parseSpecial: true })

/** Tokens of what was asked. */
export const tokens = Effect.fn("Prompt.tokens")(function*(
  file: ModelFile,
  asked: Asked & { readonly thinking: boolean }
) {
  if (!asked.raw) {
    const messages = conversation(asked)
    if (messages instanceof UsageError) return yield* messages
    return yield* chatTokens(file, { messages, thinking: asked.thinking })
  }
  if (asked.prompt === undefined || asked.messages !== undefined || asked.system !== undefined || asked.thinking) {
    return yield* new UsageError({
      message: "--raw takes the prompt as it is: give one, without --messages, --system and --thinking"
    })
  }
  return rawTokens(file.codec, asked.prompt)
})
