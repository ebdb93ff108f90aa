/** What holds an answer to a form, behind the model's thinking: the client's JSON schema, and calls of its tools. */
import * as Grammar from "@tg/constrain/Grammar"
import * as JsonSchema from "@tg/constrain/JsonSchema"
import * as Matcher from "@tg/constrain/Matcher"
import * as TokenTable from "@tg/constrain/TokenTable"
import type { Constraint } from "@tg/engine/Constraint"
import type { ReplyStyle, Tag } from "@tg/dialogue/ReplyStyle"
import type { Choice, Tool } from "@tg/dialogue/Tool"
import { toolGrammar, vocabularyOf } from "@tg/dialogue/ToolGrammar"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Result } from "effect"
import * as ApiError from "./ApiError.ts"
import type { ChatRequest } from "./ChatRequest.ts"

/** What an answer is held to. */
export interface Form {
  readonly format: ChatRequest["response_format"]
  /** The tools that the model is told of. */
  readonly tools: ReadonlyArray<Tool>
  readonly choice: Choice
  /** Calls that one answer may have. */
  readonly maxCalls: number | undefined
  readonly style: ReplyStyle
  /** Whether the prompt leaves the model thinking. */
  readonly thinkingOpen: boolean
  /** Whether it may begin to think where the prompt has not begun it. */
  readonly mayThink: boolean
}

/** Makes constraints for one model. */
export interface Constraints {
  /** Something that makes a constraint for each answer; nothing where the answer is free. */
  readonly of: (form: Form) => Result.Result<(() => Constraint) | undefined, ApiError.ApiError>
}

/** Grammars that are kept. */
const kept = 64

/** Constraints over a vocabulary. The table of its tokens is made when it is first needed. */
export const make = (codec: Codec): Constraints => {
  let table: TokenTable.TokenTable | undefined
  const matchers = new Map<string, Matcher.Matcher>()

  const matching = (grammar: Grammar.Grammar): Result.Result<Matcher.Matcher, ApiError.ApiError> => {
    table ??= TokenTable.make(vocabularyOf(codec))
    return Result.mapError(
      Matcher.makeResult(grammar, table),
      ({ message }) => ApiError.invalid(message, { param: "response_format", code: "unsupported_schema" })
    )
  }

  /** The matcher of a form at its beginning; those used last are kept. */
  const matcherOf = (form: Form): Result.Result<Matcher.Matcher, ApiError.ApiError> => {
    const { style: _, ...key } = form
    const name = JSON.stringify(key)
    const made = Result.orElse(
      Result.fromNullishOr(matchers.get(name), () => undefined),
      () => Result.flatMap(grammarOf(form), matching)
    )
    if (Result.isFailure(made)) return made
    matchers.delete(name)
    matchers.set(name, made.success)
    for (const oldest of matchers.keys()) {
      if (matchers.size <= kept) break
      matchers.delete(oldest)
    }
    return made
  }

  return {
    of: (form) =>
      isFree(form)
        ? Result.succeed(undefined)
        // a matcher is at one place: each answer has its own
        : Result.map(matcherOf(form), (matcher) => () => matcher.clone())
  }
}

const isFree = ({ format, tools }: Form): boolean => tools.length === 0 && (format?.type ?? "text") === "text"

const grammarOf = (form: Form): Result.Result<Grammar.Grammar, ApiError.ApiError> => {
  const schema = schemaOf(form.format)
  if (schema === undefined) return callsOf(form, form.choice)
  const value = Result.map(
    Result.mapError(JsonSchema.compile(schema), ({ message }) => invalidSchema(message)),
    (grammar) => form.thinkingOpen ? thinkingThen(form.style, grammar) : grammar
  )
  if (form.tools.length === 0) return value
  // a call or a value of the schema; where a call is asked for, there is no value
  const calls = callsOf(form, form.choice === "auto" ? "required" : form.choice)
  return form.choice === "auto"
    ? Result.flatMap(value, (value) => Result.map(calls, (calls) => Grammar.choice(value, calls)))
    : calls
}

const schemaOf = (format: ChatRequest["response_format"]): unknown => {
  switch (format?.type) {
    case "json_object":
      return { type: "object" }
    case "json_schema":
      return format.json_schema.schema
    default:
      return undefined
  }
}

const callsOf = (
  { maxCalls, mayThink, style, thinkingOpen, tools }: Form,
  choice: Choice
): Result.Result<Grammar.Grammar, ApiError.ApiError> =>
  Result.mapError(toolGrammar(style, tools, choice, { thinkingOpen, mayThink, maxCalls }), (error) => {
    if (error._tag === "UnknownTool") {
      return ApiError.invalid(`tool_choice: ${error.message}`, { param: "tool_choice", code: "invalid_value" })
    }
    const index = tools.findIndex((tool) => tool.function.name === error.tool)
    const param = `tools[${index}].function.parameters`
    return ApiError.invalid(`${param}: ${error.reason.message}`, { param, code: "unsupported_schema" })
  })

const invalidSchema = (message: string): ApiError.ApiError =>
  ApiError.invalid(`response_format.json_schema.schema: ${message}`, {
    param: "response_format.json_schema.schema",
    code: "unsupported_schema"
  })

/** Thoughts until the tag that ends them, then the answer. */
const thinkingThen = ({ thinking }: ReplyStyle, answer: Grammar.Grammar): Grammar.Grammar =>
  thinking === undefined ? answer : Grammar.sequence(untilTag(thinking.close), lineEnds, answer)

const untilTag = ({ id, text }: Tag): Grammar.Grammar =>
  id === undefined ? Grammar.until([text]) : Grammar.sequence(Grammar.anyText, Grammar.token(id))

const lineEnds = Grammar.repeat(Grammar.literal("\n"), { max: 2 })
