/** From what was asked to the token ids of a prompt. */
import { ModelFile } from "@tg/engine"
import type { Gguf } from "@tg/gguf/Gguf"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Clock, Effect, Result, Schema } from "effect"
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

/** A content that no message has by chance. */
const probe = "tgprobe0417"
/** Roles that templates know. */
const usualRoles = ["system", "developer", "user", "assistant", "tool", "observation"] as const

/** What a template makes of messages. */
type Render = (messages: ReadonlyArray<Message>) => Result.Result<{ readonly text: string }, unknown>

const prints = (render: Render, messages: ReadonlyArray<Message>): boolean | undefined => {
  const rendered = render(messages)
  return Result.isFailure(rendered) ? undefined : rendered.success.text.includes(probe)
}

/** The usual roles whose messages a template prints. */
const rolesOf = (render: Render): ReadonlyArray<string> =>
  usualRoles.filter((role) => {
    const message = { role, content: probe }
    const user = { role: "user", content: "x" }
    return prints(render, role === "system" || role === "developer" ? [message, user] : [user, message, user]) === true
  })

/**
 * Refuses a conversation of which the template drops messages, because it does not know their role: found by looking whether it
 * prints another content of theirs. Where a template fails with that, or a message has more than a content, nothing is known.
 */
export const droppedRole = (messages: ReadonlyArray<Message>, render: Render): UsageError | undefined => {
  for (const role of new Set(messages.map((message) => message.role))) {
    const last = messages.findLastIndex((message) =>
      message.role === role && Object.keys(message).every((key) => key === "role" || key === "content")
    )
    if (last < 0) continue
    const probed = messages.map((message, i) => i === last ? { ...message, content: probe } : message)
    if (prints(render, probed) === false) {
      return new UsageError({
        message: `message ${last + 1} has the role ${JSON.stringify(role)}, and the model's chat template drops it; ` +
          `its roles are ${rolesOf(render).join(", ")}`
      })
    }
  }
  return undefined
}

/** Tokens of a conversation, by the model's chat template. */
export const chatTokens = Effect.fn("Prompt.chatTokens")(function*(
  gguf: Gguf,
  codec: Codec,
  conversation: { readonly messages: ReadonlyArray<Message>; readonly thinking: boolean }
) {
  const template = yield* Effect.fromResult(ModelFile.chatTemplate(gguf, codec))
  const { messages, thinking } = conversation
  const now = new Date(yield* Clock.currentTimeMillis)
  const render = (messages: ReadonlyArray<Message>) =>
    template.render({ messages, variables: { enable_thinking: thinking } }, now)
  const prompt = yield* Effect.fromResult(render(messages))
  const dropped = droppedRole(messages, render)
  if (dropped !== undefined) return yield* dropped
  return codec.encodeSegments(prompt.segments)
})

/** Tokens of a text as it is. Special tokens may be written out. */
export const rawTokens = (codec: Codec, text: string): ReadonlyArray<number> =>
  codec.encode(text, { addSpecial: true, parseSpecial: true })

/** Tokens of what was asked. */
export const tokens = Effect.fn("Prompt.tokens")(function*(
  gguf: Gguf,
  codec: Codec,
  asked: Asked & { readonly thinking: boolean }
) {
  if (!asked.raw) {
    const messages = conversation(asked)
    if (messages instanceof UsageError) return yield* messages
    return yield* chatTokens(gguf, codec, { messages, thinking: asked.thinking })
  }
  if (asked.prompt === undefined || asked.messages !== undefined || asked.system !== undefined || asked.thinking) {
    return yield* new UsageError({
      message: "--raw takes the prompt as it is: give one, without --messages, --system and --thinking"
    })
  }
  return rawTokens(codec, asked.prompt)
})
