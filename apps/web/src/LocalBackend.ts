/** Answers of the model in this page, for the components of the chat page. */
import { type Backend, BackendError } from "@tg/page/Backend"
import type { Settings } from "@tg/page/Settings"
import type { ChatOptions } from "@tg/web/Model"
import { ModelError } from "@tg/web/ModelError"
import * as Local from "./Local.ts"

const optionsOf = ({ maxTokens, temperature, thinking, topP }: Settings): ChatOptions => ({
  maxTokens,
  temperature,
  topP,
  variables: thinking ? { enable_thinking: true } : {}
})

const explained = (error: unknown): unknown => {
  if (!(error instanceof ModelError)) return error instanceof Error ? new BackendError(error.message) : error
  if (error.reason === "WorkerFailed" || error.reason === "Closed") {
    Local.lost(error.message)
    return new BackendError("The engine of this page ended, perhaps for lack of memory. Answer again to start it anew.")
  }
  return new BackendError(error.message)
}

/** Fails when the signal is aborted: nobody waits for a model that loads to be told so. */
const unlessAborted = <A>(signal: AbortSignal, promise: Promise<A>): Promise<A> =>
  Promise.race([
    promise,
    new Promise<never>((_, reject) => {
      if (signal.aborted) reject(signal.reason)
      signal.addEventListener("abort", () => reject(signal.reason), { once: true })
    })
  ])

/** The model in this page. A question waits until it is loaded. */
export const backend: Backend = {
  models: async () => {
    const { value } = Local.phase
    return value.at === "ready" ? [value.facts.name] : []
  },
  answer: async function*(messages, settings, signal) {
    try {
      const model = await unlessAborted(signal, Local.model())
      for await (
        const piece of model.reply(messages.map((message) => ({ ...message })), { ...optionsOf(settings), signal })
      ) yield piece
    } catch (error) {
      throw signal.aborted ? error : explained(error)
    }
  }
}
