/** What the page shows, as signals, and what a person can do to it. */
import { batch, computed, signal } from "@preact/signals"
import { type Backend, BackendError, openAi } from "./Backend.ts"
import * as Conversation from "./Conversation.ts"
import * as Settings from "./Settings.ts"
import * as Storage from "./Storage.ts"

/** Milliseconds between two times that an answer on its way is kept, so that a reload loses little of it. */
const keepEvery = 500

let backend: Backend = openAi()

/** Has questions answered by another backend. To be called before `start`. */
export const answerWith = (other: Backend): void => {
  backend = other
}

export const settings = signal<Settings.Settings>(Settings.usual)
export const models = signal<ReadonlyArray<string>>([])
/** Something that concerns the page as a whole. */
export const trouble = signal<string | undefined>(undefined)
export const all = signal<ReadonlyArray<Conversation.Conversation>>([])
export const shown = signal<string>("")
/** Conversations whose answer is on its way. */
export const answering = signal<ReadonlyMap<string, AbortController>>(new Map())
export const isLoaded = signal(false)
/** Whether what is shown is what there is: at once where no conversation is kept. */
export const isKnown = signal(false)

/** The conversation on the screen: one that is not in the list yet if nothing was said. */
const fresh = signal(Conversation.empty(""))
export const current = computed(() => all.value.find(({ id }) => id === shown.value) ?? fresh.value)
export const isAnswering = computed(() => answering.value.has(current.value.id))

const told = (error: unknown): string => error instanceof Error ? error.message : String(error)

const keep = (conversation: Conversation.Conversation): void => {
  Storage.save(conversation).catch((error: unknown) => {
    trouble.value = `The browser does not keep this conversation: ${told(error)}`
  })
}

const put = (conversation: Conversation.Conversation): void => {
  all.value = [conversation, ...all.value.filter(({ id }) => id !== conversation.id)].sort((a, b) =>
    b.changed - a.changed
  )
}

/** Reads what the browser has kept, and asks the server what it has. */
export const start = async (): Promise<void> => {
  settings.value = Storage.loadSettings()
  if (shown.value === "") fresh.value = Conversation.empty(settings.value.system)
  isKnown.value = !Storage.mayHave()
  try {
    const kept = await Storage.load()
    // somebody may have asked already
    all.value = [...all.value, ...kept.filter(({ id }) => all.value.every((other) => other.id !== id))]
  } catch (error) {
    trouble.value = `The browser keeps no conversations here: ${told(error)}`
  }
  const asked = location.hash.slice(1)
  const first = all.value.find(({ id }) => id === asked) ?? all.value[0]
  if (first !== undefined && shown.value === "") shown.value = first.id
  isKnown.value = true
  isLoaded.value = true
  await findModels()
}

/** Asks the backend what it has. */
export const findModels = async (): Promise<void> => {
  try {
    models.value = await backend.models(settings.value)
    trouble.value = undefined
  } catch (error) {
    trouble.value = told(error)
  }
}

/** Changes settings. A new key is tried at once. */
export const change = (changes: Partial<Settings.Settings>): void => {
  const before = settings.value
  settings.value = { ...before, ...changes }
  Storage.saveSettings(settings.value)
  if (current.value.turns.length === 0) fresh.value = Conversation.empty(settings.value.system)
  if (before.apiKey !== settings.value.apiKey) void findModels()
}

/** Shows a conversation. */
export const show = (id: string): void => {
  shown.value = id
  history.replaceState(null, "", `#${id}`)
}

/** Shows an empty conversation. */
export const begin = (): void => {
  fresh.value = Conversation.empty(settings.value.system)
  show(fresh.value.id)
}

/** Forgets a conversation. */
export const forget = (id: string): void => {
  stop(id)
  all.value = all.value.filter((conversation) => conversation.id !== id)
  Storage.remove(id).catch((error: unknown) => {
    trouble.value = told(error)
  })
  if (shown.value === id) begin()
}

/** Ends an answer where it is. */
export const stop = (id: string): void => answering.value.get(id)?.abort()

/** Asks a question. */
export const ask = (text: string): void => void answer(Conversation.asking(current.value, text))

/** Asks a question again in other words; what followed is gone. */
export const edit = (turnId: string, text: string): void =>
  void answer(Conversation.editing(current.value, turnId, text))

/** Asks the last question again. */
export const regenerate = (): void => void answer(Conversation.regenerating(current.value))

const answer = async (conversation: Conversation.Conversation): Promise<void> => {
  const { id } = conversation
  if (answering.value.has(id)) return
  const controller = new AbortController()
  batch(() => {
    put(conversation)
    show(id)
    answering.value = new Map([...answering.value, [id, controller]])
  })
  keep(conversation)
  await stream(conversation, controller.signal)
  answering.value = new Map([...answering.value].filter(([other]) => other !== id))
}

/** Puts an answer into the last turn of a conversation, as it comes. Fails never: an error is part of the turn. */
const stream = async (asked: Conversation.Conversation, signal: AbortSignal): Promise<void> => {
  let text = ""
  let reasoning = ""
  let kept = performance.now()
  const started = kept
  let firstAt: number | undefined
  const say = (turn: Partial<Conversation.Turn>): void => {
    // a conversation that was forgotten stays so
    if (!all.value.some(({ id }) => id === asked.id)) return
    const said = Conversation.withLast(asked, { text, reasoning: reasoning === "" ? undefined : reasoning, ...turn })
    put(said)
    const now = performance.now()
    if (turn.ending === undefined && now - kept < keepEvery) return
    kept = now
    keep(said)
  }
  // a question may come before the backend has said what it has
  if (models.value.length === 0) await findModels()
  const choice = { ...settings.value, model: modelOf() }
  try {
    for await (const piece of backend.answer(Conversation.messagesOf(asked), choice, signal)) {
      firstAt ??= performance.now()
      if (piece.type === "done") say({ ending: piece.ending, stats: statsOf(piece, { started, firstAt }) })
      else {
        if (piece.type === "text") text += piece.text
        else reasoning += piece.text
        say({})
      }
    }
  } catch (error) {
    if (signal.aborted) say({ ending: "stopped" })
    else say({ ending: "error", error: error instanceof BackendError ? error.message : `This failed: ${told(error)}` })
  }
}

/** The model that was chosen, if the server still has it; else its first. */
const modelOf = (): string =>
  models.value.includes(settings.value.model) ? settings.value.model : models.value[0] ?? settings.value.model

const statsOf = (
  done: { readonly promptTokens: number; readonly cachedTokens: number; readonly answerTokens: number },
  { firstAt, started }: { readonly started: number; readonly firstAt: number }
): Conversation.Stats => {
  const { answerTokens, cachedTokens, promptTokens } = done
  const millis = performance.now() - firstAt
  return {
    promptTokens,
    cachedTokens,
    answerTokens,
    firstTokenMillis: firstAt - started,
    tokensPerSecond: answerTokens > 1 && millis > 0 ? (answerTokens - 1) / millis * 1000 : undefined
  }
}
