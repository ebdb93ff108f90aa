/**
 * OpenAI's messages as input of a chat template.
 *
 * Templates differ: in whether they describe tools, print calls and results, and take arguments as an object or as JSON text. What a
 * template does is probed by rendering a short conversation with it. What it drops is written into the texts, in the form in which the
 * model's replies are parsed.
 */
import type { Message, Renderer } from "@tg/tokenizer/ChatTemplate"
import { Result, Schema } from "effect"
import { parse } from "./internal/members.ts"
import type { Calls, ReplyStyle } from "./ReplyStyle.ts"
import { parametersOf, type Tool } from "./Tool.ts"

/** A conversation that no template can take. */
export class InvalidConversation extends Schema.TaggedError<InvalidConversation>()("InvalidConversation", {
  /** Where, such as `messages[2].tool_calls[0].function.arguments`. */
  path: Schema.String,
  expected: Schema.String,
  found: Schema.String
}) {
  override get message(): string {
    return `${this.path}: expected ${this.expected}, found ${this.found}`
  }
}

/** A template's support for tools. */
export interface Traits {
  /** It describes the tools it is given. */
  readonly tools: boolean
  /** The form in which it takes calls of an earlier answer; undefined if it drops them. */
  readonly calls: { readonly arguments: "object" | "text"; readonly emptyContent: "" | null } | undefined
  /** It prints messages of the role `tool`. */
  readonly results: boolean
}

/** A conversation to render. */
export interface Given {
  readonly messages: ReadonlyArray<unknown>
  readonly tools?: ReadonlyArray<Tool> | undefined
}

/** The input of a template. */
export interface Taken {
  readonly messages: ReadonlyArray<Message>
  readonly tools: ReadonlyArray<unknown> | undefined
}

/** Writes conversations for one template. */
export interface Writer {
  readonly traits: Traits
  readonly write: (given: Given) => Result.Result<Taken, InvalidConversation>
}

/** Probes a template, and makes its writer. */
export const make = (template: Renderer, style: ReplyStyle): Writer => {
  const traits = traitsOf(template)
  return {
    traits,
    write: ({ messages, tools = [] }) =>
      Result.gen(function*() {
        const written: Array<Message> = []
        for (const [i, message] of messages.entries()) {
          written.push(yield* writeMessage(message, i, traits, style.calls))
        }
        const isTold = tools.length > 0 && !traits.tools
        return {
          messages: isTold ? withSystem(written, describe(tools, style.calls)) : written,
          tools: tools.length === 0 || isTold ? undefined : tools
        }
      })
  }
}

/** A call as the model would write it. */
export const writeCall = (calls: Calls, name: string, args: Readonly<Record<string, unknown>>): string => {
  const { close: { text: close }, open: { text: open } } = calls
  const json = JSON.stringify(args)
  switch (calls.form) {
    case "json":
      return `${open}{"name": ${JSON.stringify(name)}, "arguments": ${json}}${close}`
    case "pairs": {
      const { key, value } = calls
      const pairs = Object.entries(args).map(([k, v]) =>
        `${key.open.text}${k}${key.close.text}${value.open.text}` +
        `${typeof v === "string" ? v : JSON.stringify(v)}${value.close.text}`
      )
      return `${open}${name}${pairs.join("")}${close}`
    }
    case "function": {
      const body = calls.isFenced
        ? `function${calls.separator.text}${name}\n\`\`\`json\n${json}\n\`\`\``
        : `${name}${calls.separator.text}${json}`
      return `${calls.all.open.text}${open}${body}${close}${calls.all.close.text}`
    }
  }
}

const writeMessage = (
  message: unknown,
  index: number,
  traits: Traits,
  calls: Calls
): Result.Result<Message, InvalidConversation> =>
  Result.gen(function*() {
    const path = `messages[${index}]`
    if (!isObject(message)) return yield* invalid(path, "an object", message)
    const { role } = message
    if (typeof role !== "string" || role === "") return yield* invalid(`${path}.role`, "a role", role)
    const text = yield* textOf(message["content"], `${path}.content`)
    if (role === "tool" && !traits.results) {
      return { role: "user", content: `<tool_response>${text}</tool_response>` }
    }
    const asked = message["tool_calls"]
    if (role !== "assistant" || asked === undefined || asked === null) {
      return { ...message, role: role === "developer" ? "system" : role, content: text }
    }
    if (!Array.isArray(asked)) return yield* invalid(`${path}.tool_calls`, "a list of calls", asked)
    const made: Array<Call> = []
    for (const [i, call] of asked.entries()) made.push(yield* callOf(call, `${path}.tool_calls[${i}]`))
    const { tool_calls: _, ...rest } = message
    if (made.length === 0) return { ...rest, role, content: text }
    if (traits.calls === undefined) {
      const written = made.map(({ args, name }) => writeCall(calls, name, args)).join("\n")
      return { ...rest, role, content: text === "" ? written : `${text}\n${written}` }
    }
    const { arguments: as, emptyContent } = traits.calls
    const tool_calls = made.map(({ args, fields, name }) => ({
      ...fields,
      type: "function",
      function: { name, arguments: as === "object" ? args : JSON.stringify(args) }
    }))
    return { ...rest, role, content: text === "" ? emptyContent : text, tool_calls }
  })

interface Call {
  readonly name: string
  readonly args: Readonly<Record<string, unknown>>
  readonly fields: Readonly<Record<string, unknown>>
}

const callOf = (call: unknown, path: string): Result.Result<Call, InvalidConversation> => {
  if (!isObject(call)) return invalid(path, "an object", call)
  const called = call["function"]
  if (!isObject(called)) return invalid(`${path}.function`, "an object with name and arguments", called)
  const { arguments: given, name } = called
  if (typeof name !== "string" || name === "") return invalid(`${path}.function.name`, "a name", name)
  const args = typeof given === "string" ? parse(given === "" ? "{}" : given) : given ?? {}
  return isObject(args)
    ? Result.succeed({ name, args, fields: call })
    : invalid(`${path}.function.arguments`, "a JSON object as text", given)
}

const textOf = (content: unknown, path: string): Result.Result<string, InvalidConversation> => {
  if (content === undefined || content === null) return Result.succeed("")
  if (typeof content === "string") return Result.succeed(content)
  if (!Array.isArray(content)) return invalid(path, "a text, or a list of parts", content)
  const texts: Array<string> = []
  for (const [i, part] of content.entries()) {
    const text: unknown = typeof part === "string"
      ? part
      : isObject(part) && part["type"] === "text"
      ? part["text"]
      : null
    if (typeof text !== "string") return invalid(`${path}[${i}]`, "a part of the type text", part)
    texts.push(text)
  }
  return Result.succeed(texts.join(""))
}

const withSystem = (messages: ReadonlyArray<Message>, text: string): ReadonlyArray<Message> => {
  const [first, ...rest] = messages
  return first?.role === "system"
    ? [{ ...first, content: `${String(first.content)}\n\n${text}` }, ...rest]
    : [{ role: "system", content: text }, ...messages]
}

/** The system text about tools, for a template that does not describe them. */
const describe = (tools: ReadonlyArray<Tool>, calls: Calls): string => {
  const lines = tools.map((tool) => {
    const { description, name } = tool.function
    return JSON.stringify({ name, description, parameters: parametersOf(tool) })
  })
  const example = writeCall(calls, "NAME", { KEY: "VALUE" })
  return `You can call these functions:\n${lines.join("\n")}\nTo call one, write: ${example}`
}

const probe = { name: "tg_name", key: "tg_key", value: "tg_value", result: "tg_result", tool: "tg_tool" } as const

/** A template's support for tools, by probing. */
export const traitsOf = (template: Renderer): Traits => {
  const print = (messages: ReadonlyArray<Message>, tools?: ReadonlyArray<unknown>): string => {
    const rendered = template.render({ messages, tools }, new Date(0))
    return Result.isSuccess(rendered) ? rendered.success.text : ""
  }
  const question = { role: "user", content: "a" }
  const isPrinted = (calls: NonNullable<Traits["calls"]>): boolean => {
    const args = { [probe.key]: probe.value }
    const function_ = { name: probe.name, arguments: calls.arguments === "object" ? args : JSON.stringify(args) }
    const tool_calls = [{ id: "call_0", type: "function", function: function_ }]
    const answer = { role: "assistant", content: calls.emptyContent, tool_calls }
    const result = { role: "tool", tool_call_id: "call_0", name: probe.name, content: probe.result }
    const text = print([question, answer, result])
    // arguments that were given as text and printed as JSON are quoted twice
    return [probe.name, probe.key, probe.value].every((word) => text.includes(word)) &&
      !text.includes(`\\"${probe.key}`)
  }
  const parameters = { type: "object", properties: {} }
  const tool = { type: "function", function: { name: probe.tool, description: "b", parameters } }
  return {
    tools: print([question], [tool]).includes(probe.tool),
    calls: ways.find(isPrinted),
    results: print([question, { role: "assistant", content: "b" }, { role: "tool", content: probe.result }])
      .includes(probe.result)
  }
}

const ways = [
  { arguments: "object", emptyContent: "" },
  { arguments: "object", emptyContent: null },
  { arguments: "text", emptyContent: "" },
  { arguments: "text", emptyContent: null }
] as const

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const invalid = (path: string, expected: string, found: unknown): Result.Result<never, InvalidConversation> =>
  Result.fail(new InvalidConversation({ path, expected, found: shown(found) }))

const shown = (value: unknown): string => {
  if (value === undefined) return "nothing"
  const json = JSON.stringify(value)
  return json.length > 60 ? `${json.slice(0, 60)}..` : json
}
