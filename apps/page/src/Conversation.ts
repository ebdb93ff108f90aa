/** A conversation as the page keeps it: plain data, and the changes that a person makes to it. */

/** How an answer was computed, as far as the server told. */
export interface Stats {
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly answerTokens: number
  readonly firstTokenMillis: number
  /** Without the wait for the first token. Not there for answers of a single token. */
  readonly tokensPerSecond: number | undefined
}

/** Why an answer has ended: by itself, at its token limit, by the person, or because of an error. */
export type Ending = "end" | "length" | "stopped" | "error"

/** What one side said. */
export interface Turn {
  readonly id: string
  readonly role: "user" | "assistant"
  readonly text: string
  /** What the model thought before it answered. */
  readonly reasoning?: string | undefined
  /** Not there while the answer is on its way. */
  readonly ending?: Ending | undefined
  readonly error?: string | undefined
  readonly stats?: Stats | undefined
}

/** Turns in order, and what surrounds them. */
export interface Conversation {
  readonly id: string
  /** Milliseconds since 1970. */
  readonly changed: number
  readonly system: string
  readonly turns: ReadonlyArray<Turn>
}

/** Unique names, which need not be secret. `crypto.randomUUID` exists in secure contexts only. */
export const newId = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("")

/** A conversation in which nothing was said. */
export const empty = (system: string): Conversation => ({ id: newId(), changed: Date.now(), system, turns: [] })

/** The first words of a conversation, to find it by. */
export const titleOf = ({ turns }: Conversation): string => {
  const said = turns.find(({ role, text }) => role === "user" && text.trim() !== "")?.text.trim().replace(/\s+/g, " ")
  if (said === undefined) return "New chat"
  const letters = [...said]
  return letters.length <= 48 ? said : `${letters.slice(0, 47).join("")}…`
}

const changedNow = (conversation: Conversation, turns: ReadonlyArray<Turn>): Conversation => ({
  ...conversation,
  changed: Date.now(),
  turns
})

/** With a question at the end, and room for its answer. */
export const asking = (conversation: Conversation, text: string): Conversation =>
  changedNow(conversation, [
    ...conversation.turns,
    { id: newId(), role: "user", text },
    { id: newId(), role: "assistant", text: "" }
  ])

/** With another text for a question, and without what followed it: room for an answer takes its place. */
export const editing = (conversation: Conversation, turnId: string, text: string): Conversation => {
  const at = conversation.turns.findIndex(({ id, role }) => id === turnId && role === "user")
  return at < 0 ? conversation : asking({ ...conversation, turns: conversation.turns.slice(0, at) }, text)
}

/** With room for another last answer. */
export const regenerating = (conversation: Conversation): Conversation => {
  const question = conversation.turns.findLast(({ role }) => role === "user")
  return question === undefined ? conversation : editing(conversation, question.id, question.text)
}

/** With a change to the last turn. */
export const withLast = (conversation: Conversation, change: Partial<Turn>): Conversation =>
  changedNow(
    conversation,
    conversation.turns.map((turn, i) => i === conversation.turns.length - 1 ? { ...turn, ...change } : turn)
  )

/** A message as the server takes it. */
export interface Message {
  readonly role: "system" | "user" | "assistant"
  readonly content: string
}

/** What the server is asked: everything up to the answer that is missing. Answers that failed before a word are left out. */
export const messagesOf = ({ system, turns }: Conversation): ReadonlyArray<Message> => [
  ...(system.trim() === "" ? [] : [{ role: "system" as const, content: system }]),
  ...turns.filter(({ role, text }) => role === "user" || text !== "").map(({ role, text }) => ({ role, content: text }))
]

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const endings: ReadonlyArray<unknown> = ["end", "length", "stopped", "error"]

const turnOf = (value: unknown): Turn | undefined => {
  if (!isRecord(value)) return undefined
  const { ending, error, id, reasoning, role, stats, text } = value
  if (typeof id !== "string" || typeof text !== "string" || role !== "user" && role !== "assistant") return undefined
  return {
    id,
    role,
    text,
    reasoning: typeof reasoning === "string" ? reasoning : undefined,
    // a page that was closed in the middle of an answer has stopped it
    ending: endings.includes(ending) ? ending as Ending : role === "assistant" ? "stopped" : undefined,
    error: typeof error === "string" ? error : undefined,
    stats: isStats(stats) ? stats : undefined
  }
}

const isStats = (value: unknown): value is Stats =>
  isRecord(value) &&
  ["promptTokens", "cachedTokens", "answerTokens", "firstTokenMillis"].every((name) => Number.isFinite(value[name])) &&
  (value["tokensPerSecond"] === undefined || Number.isFinite(value["tokensPerSecond"]))

/** Reads what a browser has kept, perhaps written by another version of the page. `undefined` if it is none. */
export const fromStored = (value: unknown): Conversation | undefined => {
  if (!isRecord(value)) return undefined
  const { changed, id, system, turns } = value
  if (typeof id !== "string" || typeof changed !== "number" || typeof system !== "string" || !Array.isArray(turns)) {
    return undefined
  }
  const read = turns.map(turnOf)
  return read.every((turn) => turn !== undefined) ? { id, changed, system, turns: read } : undefined
}
