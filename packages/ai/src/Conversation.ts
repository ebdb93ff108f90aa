/** Effect's prompts and tools in the form that `@tg/dialogue` writes for a model's template. */
import type { Tool as DialogueTool } from "@tg/dialogue/Tool"
import { Result } from "effect"
import { AiError, type LanguageModel, type Prompt, Tool } from "effect/ai"

/** A request that cannot be answered, as `LanguageModel` says it. */
export const invalid = (parameter: string, description: string): AiError.AiError =>
  AiError.make({
    module: "@tg/ai",
    method: "generateText",
    reason: new AiError.InvalidRequestError({ parameter, description })
  })

/** The messages of a prompt, in OpenAI's form. What the model thought is not told again; files are refused. */
export const messagesOf = (prompt: Prompt.Prompt): Result.Result<ReadonlyArray<unknown>, AiError.AiError> =>
  Result.gen(function*() {
    const messages: Array<unknown> = []
    for (const message of prompt.content) messages.push(...yield* written(message))
    return messages
  })

const written = (message: Prompt.Message): Result.Result<ReadonlyArray<unknown>, AiError.AiError> => {
  if (message.role === "system") return Result.succeed([{ role: "system", content: message.content }])
  const parts: ReadonlyArray<Prompt.Part> = message.content
  const file = parts.find((part) => part.type === "file")
  if (file !== undefined) {
    return Result.fail(invalid("prompt", `a file of type ${file.mediaType} was given; this model reads text alone`))
  }
  const content = parts.flatMap((part) => part.type === "text" ? [part.text] : []).join("")
  if (message.role === "user") return Result.succeed([{ role: "user", content }])
  const results = parts.flatMap((part) =>
    part.type === "tool-result"
      ? [{ role: "tool", tool_call_id: part.id, name: part.name, content: textOf(part.result) }]
      : []
  )
  if (message.role === "tool") return Result.succeed(results)
  const calls = parts.flatMap((part) =>
    part.type === "tool-call"
      ? [{ id: part.id, type: "function", function: { name: part.name, arguments: JSON.stringify(part.params) } }]
      : []
  )
  const answer = calls.length === 0 ? { role: "assistant", content } : { role: "assistant", content, tool_calls: calls }
  return Result.succeed([answer, ...results])
}

const textOf = (result: unknown): string => typeof result === "string" ? result : JSON.stringify(result) ?? ""

/** The tools that the model may call, in OpenAI's form: those of the choice, if it names some. */
export const toolsOf = (
  { toolChoice, tools }: Pick<LanguageModel.ProviderOptions, "toolChoice" | "tools">
): Result.Result<ReadonlyArray<DialogueTool>, AiError.AiError> =>
  Result.gen(function*() {
    if (toolChoice === "none") return []
    const named: ReadonlyArray<string> | undefined = typeof toolChoice !== "object"
      ? undefined
      : "oneOf" in toolChoice
      ? toolChoice.oneOf
      : [toolChoice.tool]
    const found: Array<DialogueTool> = []
    for (const tool of tools) {
      if (named !== undefined && !named.includes(tool.name)) continue
      if (Tool.isProviderDefined(tool)) {
        return yield* Result.fail(
          invalid("tools", `${tool.name} is a tool of another provider; this one runs none itself`)
        )
      }
      const description = Tool.getDescription(tool)
      found.push({
        type: "function",
        function: {
          name: tool.name,
          ...(description === undefined ? {} : { description }),
          parameters: { ...Tool.getJsonSchema(tool) }
        }
      })
    }
    return found
  })
