/** Messages that a chat template silently leaves out: found by looking whether it prints another content of theirs. */
import { Result } from "effect"
import type { Message } from "./ChatTemplate.ts"
import { MessageDropped } from "./TokenizerError.ts"

/** What a template makes of messages. */
export type Render = (messages: ReadonlyArray<Message>) => Result.Result<{ readonly text: string }, unknown>

/** A content that no message has by chance. */
const probe = "tgprobe0417"
/** Roles that templates know. */
const usualRoles = ["system", "developer", "user", "assistant", "tool", "observation"] as const

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
 * The first message of a conversation that a template drops, if it drops one. Where a template fails with the other content, or a
 * message has more than a content, nothing is known.
 */
export const droppedMessage = (messages: ReadonlyArray<Message>, render: Render): MessageDropped | undefined => {
  for (const role of new Set(messages.map((message) => message.role))) {
    const last = messages.findLastIndex((message) =>
      message.role === role && Object.keys(message).every((key) => key === "role" || key === "content")
    )
    if (last < 0) continue
    const probed = messages.map((message, i) => i === last ? { ...message, content: probe } : message)
    if (prints(render, probed) === false) {
      return new MessageDropped({ place: last + 1, role, known: rolesOf(render) })
    }
  }
  return undefined
}
