/** Who answers: an OpenAI-compatible server. Another backend has the same interface. */
import { EventSourceParserStream } from "eventsource-parser/stream"
import type { Message } from "./Conversation.ts"
import type { Settings } from "./Settings.ts"

/** A piece of an answer. `done` comes last, once. */
export type Piece =
  | { readonly type: "text" | "reasoning"; readonly text: string }
  | {
    readonly type: "done"
    readonly ending: "end" | "length"
    readonly promptTokens: number
    readonly cachedTokens: number
    readonly answerTokens: number
  }

/** What a backend does. Failures are `BackendError`s, or the signal's reason. */
export interface Backend {
  /** The names of the models it has. */
  readonly models: (settings: Settings) => Promise<ReadonlyArray<string>>
  readonly answer: (
    messages: ReadonlyArray<Message>,
    settings: Settings,
    signal: AbortSignal
  ) => AsyncGenerator<Piece, void>
}

/** Why there is no answer, in words for the person who asked. */
export class BackendError extends Error {
  readonly status: number | undefined
  constructor(message: string, status?: number) {
    super(message)
    this.name = "BackendError"
    this.status = status
  }
}

type Json = Readonly<Record<string, unknown>>
const at = (value: unknown, ...path: ReadonlyArray<string | number>): unknown =>
  path.reduce<unknown>(
    (inner, name) => typeof inner === "object" && inner !== null ? (inner as Json)[name] : undefined,
    value
  )
const count = (value: unknown): number => typeof value === "number" && Number.isFinite(value) ? value : 0

const headers = ({ apiKey }: Settings): Record<string, string> => ({
  "content-type": "application/json",
  ...(apiKey === "" ? {} : { authorization: `Bearer ${apiKey}` })
})

const request = async (path: string, settings: Settings, init: RequestInit): Promise<Response> => {
  const response = await fetch(path, { ...init, headers: headers(settings) }).catch((cause: unknown) => {
    if (init.signal?.aborted === true) throw cause
    throw new BackendError("The server cannot be reached. Is it still running?")
  })
  if (response.ok) return response
  const message = at(await response.json().catch(() => undefined), "error", "message")
  if (response.status === 401) {
    throw new BackendError("The server asks for an API key. Enter it in the settings.", 401)
  }
  throw new BackendError(
    typeof message === "string" ? message : `The server answered with status ${response.status}.`,
    response.status
  )
}

const bodyOf = (messages: ReadonlyArray<Message>, settings: Settings): Json => ({
  model: settings.model,
  messages,
  stream: true,
  stream_options: { include_usage: true },
  temperature: settings.temperature,
  top_p: settings.topP,
  max_completion_tokens: settings.maxTokens,
  ...(settings.thinking ? { chat_template_kwargs: { enable_thinking: true } } : {})
})

async function* pieces(body: ReadableStream<Uint8Array>): AsyncGenerator<Piece, void> {
  const events = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>)
    .pipeThrough(new EventSourceParserStream())
  let ending: "end" | "length" | undefined
  let usage: unknown
  let isDone = false
  for await (const { data } of events) {
    if (data === "[DONE]") {
      isDone = true
      break
    }
    const chunk: unknown = JSON.parse(data)
    const error = at(chunk, "error", "message")
    if (typeof error === "string") throw new BackendError(error)
    const reasoning = at(chunk, "choices", 0, "delta", "reasoning_content")
    if (typeof reasoning === "string" && reasoning !== "") yield { type: "reasoning", text: reasoning }
    const text = at(chunk, "choices", 0, "delta", "content")
    if (typeof text === "string" && text !== "") yield { type: "text", text }
    const reason = at(chunk, "choices", 0, "finish_reason")
    if (typeof reason === "string") ending = reason === "length" ? "length" : "end"
    usage = at(chunk, "usage") ?? usage
  }
  if (!isDone || ending === undefined) throw new BackendError("The connection broke in the middle of the answer.")
  yield {
    type: "done",
    ending,
    promptTokens: count(at(usage, "prompt_tokens")),
    cachedTokens: count(at(usage, "prompt_tokens_details", "cached_tokens")),
    answerTokens: count(at(usage, "completion_tokens"))
  }
}

/** A server: the one that the page comes from, or the one at an address. */
export const openAi = (base = ""): Backend => ({
  models: async (settings) => {
    const response = await request(`${base}/v1/models`, settings, { method: "GET" })
    const data = at(await response.json(), "data")
    return Array.isArray(data) ? data.map((model) => at(model, "id")).filter((id) => typeof id === "string") : []
  },
  answer: async function*(messages, settings, signal) {
    const body = JSON.stringify(bodyOf(messages, settings))
    const response = await request(`${base}/v1/chat/completions`, settings, { method: "POST", body, signal })
    if (response.body === null) throw new BackendError("The server's answer is empty.")
    yield* pieces(response.body)
  }
})
