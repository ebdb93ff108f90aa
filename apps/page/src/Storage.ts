/** Where conversations and settings stay: in the browser, nowhere else. */
import { createStore, del, entries, promisifyRequest } from "idb-keyval"
import * as Conversation from "./Conversation.ts"
import * as Settings from "./Settings.ts"

const store = createStore("tg", "conversations")
const settingsKey = "tg.settings"

const keptKey = "tg.kept"

/** Whether conversations may be kept: known at once, long before they are read. */
export const mayHave = (): boolean => localStorage.getItem(keptKey) !== null

/** All conversations, the last one changed first. What cannot be read is left where it is. */
export const load = async (): Promise<ReadonlyArray<Conversation.Conversation>> => {
  const all = await entries<string, unknown>(store)
  if (all.length > 0) localStorage.setItem(keptKey, "yes")
  else localStorage.removeItem(keptKey)
  return all.map(([, value]) => Conversation.fromStored(value))
    .filter((conversation) => conversation !== undefined)
    .sort((a, b) => b.changed - a.changed)
}

/**
 * Keeps a conversation, in place of what it was. It is committed at once: a page that is left, or loaded again, takes back what it has written and
 * not committed.
 */
export const save = (conversation: Conversation.Conversation): Promise<void> => {
  localStorage.setItem(keptKey, "yes")
  return store("readwrite", (conversations) => {
    conversations.put(conversation, conversation.id)
    const { transaction } = conversations
    transaction.commit()
    return promisifyRequest(transaction)
  })
}

/** Forgets a conversation. */
export const remove = (id: string): Promise<void> => del(id, store)

/** The settings that were kept. */
export const loadSettings = (): Settings.Settings => Settings.fromStored(localStorage.getItem(settingsKey))

/** Keeps the settings. */
export const saveSettings = (settings: Settings.Settings): void =>
  localStorage.setItem(settingsKey, JSON.stringify(settings))
