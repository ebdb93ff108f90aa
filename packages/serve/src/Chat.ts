/** From the body of a chat to what is generated, and how it is told. */
import * as Reply from "@tg/dialogue/Reply"
import * as ReplyStyle from "@tg/dialogue/ReplyStyle"
import type * as Tool from "@tg/dialogue/Tool"
import type { Prompt } from "@tg/tokenizer/ChatTemplate"
import { Clock, Effect, Random, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import * as ApiError from "./ApiError.ts"
import type { Job } from "./Answers.ts"
import type { ChatRequest, Tool as GivenTool } from "./ChatRequest.ts"
import type * as ChatReply from "./ChatReply.ts"
import * as Drawing from "./Drawing.ts"
import type { Limits } from "./Limits.ts"
import type { Dialogue, Served } from "./Served.ts"

/** A chat that can be answered. */
export interface Plan {
  readonly job: Job
  readonly head: ChatReply.Head
}

/** What a chat is answered with. */
export interface Place {
  readonly served: Served["Service"]
  readonly limits: Limits
  /** Who asks, as far as the connection tells. */
  readonly client: string
}

/** Checks what the schema cannot, renders the prompt, and says what is to be generated. */
export const plan = Effect.fn("Chat.plan")(function*(request: ChatRequest, { client, limits, served }: Place) {
  const other = served.check(request.model)
  if (other !== undefined) return yield* other
  const tools = yield* Effect.fromResult(toolsOf(request))
  const { codec } = served
  const dialogue = yield* Effect.fromResult(served.dialogue)
  const { style } = dialogue
  const prompt = yield* render(request, tools, { dialogue, served })
  const thinkingOpen = ReplyStyle.isThinkingOpen(style, prompt)
  const n = request.n ?? 1
  if (n > limits.choices) return yield* tooManyChoices(n, limits)
  const logprobs = request.logprobs === true
  if (!logprobs && (request.top_logprobs ?? 0) > 0) {
    return yield* ApiError.invalid("top_logprobs is given without logprobs: true", {
      param: "top_logprobs",
      code: "invalid_value"
    })
  }
  const drawing = yield* Effect.fromResult(Drawing.of(request, {
    logprobs: logprobs ? request.top_logprobs ?? 0 : undefined,
    seed: yield* Random.nextIntBetween(0, 2 ** 32),
    vocabulary: codec.vocabulary.tokens.length
  }))
  const tokens = codec.encodeSegments(prompt.segments)
  const tooLong = checkLength(tokens.length, served, "messages")
  if (tooLong !== undefined) return yield* tooLong
  const constraint = yield* Effect.fromResult(
    served.constraints.of({
      format: request.response_format,
      tools,
      choice: choiceOf(request),
      maxCalls: request.parallel_tool_calls === false ? 1 : undefined,
      style,
      thinkingOpen,
      mayThink: variablesOf(request)["enable_thinking"] !== false
    })
  )
  const job: Job = {
    client: clientOf(client, request.user),
    requests: Array.from(
      { length: n },
      (_, i) => () => ({ ...Drawing.another(drawing, i), tokens, constraint: constraint?.() })
    ),
    param: "messages",
    reader: () => Reply.make(style, { toolsGiven: tools, thinkingOpen }),
    isLast: (part) => request.parallel_tool_calls === false && part.type === "tool-end"
  }
  const head: ChatReply.Head = {
    id: `chatcmpl-${yield* newId}`,
    created: Math.floor((yield* Clock.currentTimeMillis) / 1000),
    model: served.id,
    codec,
    thinkingOpen,
    logprobs,
    answers: n
  }
  return { job, head } satisfies Plan
})

/** An id that no other answer has. */
export const newId = Effect.sync(() => SecureRandom.uuidV4Unsafe().replaceAll("-", ""))

/** Whose turn a request takes: a user's on a connection's. */
export const clientOf = (client: string, user: string | null | undefined): string => `${client} ${user ?? ""}`

/** More answers than the server gives. */
export const tooManyChoices = (asked: number, { choices }: Limits): ApiError.ApiError =>
  ApiError.invalid(`${asked} answers were asked for; this server gives up to ${choices} to a request`, {
    param: "n",
    code: "invalid_value"
  })

/** Whether a prompt leaves no room for an answer. */
export const checkLength = (
  length: number,
  { context }: Served["Service"],
  param: string
): ApiError.ApiError | undefined =>
  length < context ? undefined : ApiError.invalid(
    `the prompt has ${length} tokens; the context of this model holds ${context}, the answer included`,
    { param, code: "context_length_exceeded" }
  )

/** Whether a text cannot fit, told without making tokens of it, which takes time. */
export const checkText = (
  characters: number,
  { context, longestToken }: Served["Service"],
  param: string
): ApiError.ApiError | undefined =>
  characters <= context * longestToken ? undefined : ApiError.invalid(
    `the prompt has ${characters} characters, which are more than the ${context} tokens of this model's context`,
    { param, code: "context_length_exceeded" }
  )

const choiceOf = ({ tool_choice: choice }: ChatRequest): Tool.Choice =>
  typeof choice === "object" && choice !== null ? { name: choice.function.name } : choice ?? "auto"

/** The tools that the model is told of. */
const toolsOf = (request: ChatRequest): Result.Result<ReadonlyArray<Tool.Tool>, ApiError.ApiError> => {
  const tools = request.tools ?? []
  const choice = request.tool_choice ?? "auto"
  const names = tools.map((tool) => tool.function.name)
  const twice = names.find((name, i) => names.indexOf(name) < i)
  if (twice !== undefined) {
    return Result.fail(ApiError.invalid(`tools: ${twice} is there twice`, { param: "tools", code: "invalid_value" }))
  }
  if (choice === "none") return Result.succeed([])
  if (choice !== "auto" && tools.length === 0) {
    return Result.fail(
      ApiError.invalid("tool_choice asks for a call, and there are no tools", {
        param: "tool_choice",
        code: "invalid_value"
      })
    )
  }
  return Result.succeed(tools.map(withoutNulls))
}

const render = Effect.fnUntraced(function*(
  request: ChatRequest,
  tools: ReadonlyArray<Tool.Tool>,
  { dialogue: { template, writer }, served }: { readonly dialogue: Dialogue; readonly served: Served["Service"] }
) {
  const { messages, tools: told } = yield* Effect.fromResult(
    Result.mapError(
      writer.write({ messages: request.messages, tools }),
      (error) => ApiError.invalid(error.message, { param: error.path, code: "invalid_value" })
    )
  )
  const characters = messages.reduce((sum, { content }) => sum + (typeof content === "string" ? content.length : 0), 0)
  const tooLong = checkText(characters, served, "messages")
  if (tooLong !== undefined) return yield* tooLong
  const variables = variablesOf(request)
  const now = new Date(yield* Clock.currentTimeMillis)
  const rendered: Result.Result<Prompt, { readonly message: string }> = template.render(
    { messages, tools: told, variables },
    now
  )
  return yield* Effect.fromResult(
    Result.mapError(
      rendered,
      ({ message }) => ApiError.invalid(message, { param: "messages", code: "template_failed" })
    )
  )
})

/** What the template is told besides messages and tools. */
const variablesOf = (
  { chat_template_kwargs, reasoning_effort: effort }: ChatRequest
): Readonly<Record<string, unknown>> => ({
  ...(effort === null || effort === undefined ? {} : { enable_thinking: effort !== "none" }),
  ...chat_template_kwargs
})

const withoutNulls = ({ function: { description, name, parameters }, type }: GivenTool): Tool.Tool => ({
  type,
  function: {
    name,
    ...(typeof description === "string" ? { description } : {}),
    parameters: parameters ?? { type: "object", properties: {} }
  }
})
