/** A conversation: what was said, and what becomes of it. Values only. */
import type { Message } from "../Prompt.ts"

/** A conversation. */
export interface Talk {
  readonly system: string | undefined
  /** Without the system text. */
  readonly messages: ReadonlyArray<Message>
}

/** Nothing was said. */
export const empty: Talk = { system: undefined, messages: [] }

/** A conversation from a file's messages: the system text is the first of them, if it is one. */
export const fromMessages = (messages: ReadonlyArray<Message>, system?: string): Talk => {
  const [first, ...rest] = messages
  return system === undefined && first?.role === "system"
    ? { system: first.content, messages: rest }
    : { system, messages }
}

/** All messages, as a template and a file take them. */
export const toMessages = ({ messages, system }: Talk): ReadonlyArray<Message> => [
  ...(system === undefined ? [] : [{ role: "system", content: system }]),
  ...messages
]

/** With something that the user says. */
export const say = (talk: Talk, content: string): Talk => ({
  ...talk,
  messages: [...talk.messages, { role: "user", content }]
})

/** With the model's answer. */
export const answer = (
  talk: Talk,
  { content, reasoning }: { readonly content: string; readonly reasoning: string }
): Talk => ({
  ...talk,
  messages: [
    ...talk.messages,
    { role: "assistant", content, ...(reasoning === "" ? {} : { reasoning_content: reasoning }) }
  ]
})

/** Up to the last thing that the user said; nothing if there is none. */
export const unanswered = (talk: Talk): Talk | undefined => {
  const last = talk.messages.findLastIndex(({ role }) => role === "user")
  return last < 0 ? undefined : { ...talk, messages: talk.messages.slice(0, last + 1) }
}

/** Without the oldest turns, each from a message of the user to the next; nothing if there are not as many. */
export const forget = (talk: Talk, turns: number): Talk | undefined => {
  const starts = talk.messages.flatMap(({ role }, i) => role === "user" ? [i] : [])
  return turns > starts.length
    ? undefined
    : { ...talk, messages: talk.messages.slice(starts[turns] ?? talk.messages.length) }
}
