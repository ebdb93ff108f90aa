/** Messages that a chat template silently drops, found by a probe: does another content of the message give another text? */
import { Result } from "effect"
import type { Message } from "./ChatTemplate.ts"
import { MessageDropped } from "./TokenizerError.ts"

/** Renders messages by a template. */
export type Render = (messages: ReadonlyArray<Message>) => Result.Result<{ readonly text: string }, unknown>

/** Two probes: improbable contents of about the same length. */
const [probe, other] = ["tgprobe0417", "Xy WqZKiv96"] as const
/** Roles that templates know. */
const usualRoles = ["system", "developer", "user", "assistant", "tool", "observation"] as const

/** Whether a template prints the content of a message; undefined where it fails. */
const prints = (render: Render, messages: ReadonlyArray<Message>, place: number): boolean | undefined => {
  const saying = (content: string) =>
    render(messages.map((message, i) => i === place ? { ...message, content } : message))
  const one = saying(probe)
  const two = saying(other)
  return Result.isFailure(one) || Result.isFailure(two) ? undefined : one.success.text !== two.success.text
}

/** The usual roles whose messages a template prints. */
const rolesOf = (render: Render): ReadonlyArray<string> =>
  usualRoles.filter((role) => {
    const message = { role, content: probe }
    const user = { role: "user", content: "x" }
    return role === "system" || role === "developer"
      ? prints(render, [message, user], 0) === true
      : prints(render, [user, message, user], 1) === true
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
    if (prints(render, messages, last) === false) {
      return new MessageDropped({ place: last + 1, role, known: rolesOf(render) })
    }
  }
  return undefined
}
