/** What a generated text may be: where it stops, what form it has, which tools it calls. */
import { type ConstrainError, JsonSchema, Matcher, TokenTable } from "@tg/constrain"
import { Messages, Reply, ReplyStyle, Tool, ToolGrammar } from "@tg/dialogue"
import type { ModelFile } from "@tg/engine/ModelFile"
import type { Request, Token } from "@tg/engine/Engine"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Clock, Effect, Option, Schema, Stream } from "effect"
import { Flag } from "effect/cli"
import * as Files from "./Files.ts"
import * as Prompt from "./Prompt.ts"
import { UsageError } from "./Report.ts"

/** The flags. */
export const flags = {
  stop: Flag.String("stop").pipe(
    Flag.withMetavar("TEXT"),
    Flag.withDescription("End in front of this text; any number of times"),
    Flag.between(0, 64)
  ),
  schema: Flag.String("schema").pipe(
    Flag.withMetavar("FILE"),
    Flag.withDescription("A JSON schema: the text is JSON that it allows"),
    Flag.optional
  ),
  tools: Flag.String("tools").pipe(
    Flag.withMetavar("FILE"),
    Flag.withDescription(
      "Functions the model may call: JSON, [{\"type\": \"function\", \"function\": {\"name\": .., \"parameters\": ..}}, ..]"
    ),
    Flag.optional
  ),
  toolChoice: Flag.String("tool-choice").pipe(
    Flag.withMetavar("auto|required|none|NAME"),
    Flag.withDescription("With --tools: whether the model has to call one, or which one (default: auto)"),
    Flag.optional
  )
} as const

/** What was given for them. */
export interface Given {
  readonly stop: ReadonlyArray<string>
  readonly schema: Option.Option<string>
  readonly tools: Option.Option<string>
  readonly toolChoice: Option.Option<string>
}

/** How a text is made and read. */
export interface Form {
  /** The prompt, where it is another one than without these flags. */
  readonly prompt: ReadonlyArray<number> | undefined
  readonly request: Pick<Request, "stop" | "constraint">
  /** What is printed of the tokens. A call is a line of JSON. */
  readonly texts: <E, R>(tokens: Stream.Stream<Token, E, R>) => Stream.Stream<string, E, R>
  /** Whether all that the form asks for is there, once there are no more tokens. */
  readonly isWhole: () => boolean
  /** What `--json` tells on top, when all tokens are there. */
  readonly told: () => Readonly<Record<string, unknown>>
}

interface Source {
  readonly file: ModelFile
  readonly asked: Prompt.Asked & { readonly thinking: boolean }
}

/** A text that ended before it had its form. */
export class CutText extends Schema.TaggedError<CutText>()("CutText", {
  tokens: Schema.Int,
  maxTokens: Schema.Int
}) {
  override get message(): string {
    const end = this.tokens >= this.maxTokens ? `-n ${this.maxTokens} ended it; give it more` : "a --stop text ended it"
    return `the text was cut after ${this.tokens} tokens and is not whole: ${end}`
  }
}

/** The form that is asked for. Whatever is wrong with it is said before a model is loaded. */
export const of = Effect.fn("cli.form")(function*(given: Given, source: Source) {
  const { schema, stop, toolChoice, tools } = given
  const stops = stop.length === 0 ? {} : { stop }
  const plain: Form = {
    prompt: undefined,
    request: stops,
    texts: Stream.map(({ text }) => text),
    isWhole: () => true,
    told: () => ({})
  }
  if (stop.includes("")) return yield* new UsageError({ message: "--stop needs a text of a character or more" })
  if (Option.isSome(schema) && Option.isSome(tools)) {
    return yield* new UsageError({ message: "--schema and --tools both say what the text may be; keep one of them" })
  }
  if (Option.isNone(tools) && Option.isSome(toolChoice)) {
    return yield* new UsageError({ message: "--tool-choice is about --tools, which is missing" })
  }
  if (Option.isSome(schema)) {
    const grammar = yield* schemaGrammar(schema.value, source)
    const constraint = Matcher.make(grammar, tableOf(source.file.codec))
    const { isComplete } = constraint
    const form: Form = {
      ...plain,
      request: { ...stops, constraint },
      isWhole: isComplete,
      told: () => ({ complete: isComplete() })
    }
    return form
  }
  if (Option.isNone(tools)) return plain
  const list = yield* readTools(tools.value)
  const called = yield* calling(list, choiceOf(Option.getOrElse(toolChoice, () => "auto")), source)
  const form: Form = { ...called, request: { ...stops, ...called.request } }
  return form
})

const tableOf = (codec: Codec): TokenTable.TokenTable => TokenTable.make(ToolGrammar.vocabularyOf(codec))

const schemaGrammar = Effect.fnUntraced(function*(path: string, { asked }: Source) {
  if (asked.thinking) {
    return yield* new UsageError({ message: "with --schema the text is JSON from its beginning; leave out --thinking" })
  }
  const text = yield* Files.readText(path)
  const schema = yield* Files.decodeJson(text, { schema: Schema.Unknown, where: path })
  return yield* Effect.fromResult(JsonSchema.compile(schema)).pipe(
    Effect.mapError((error: ConstrainError.UnsupportedSchema) =>
      new UsageError({ message: `${path} asks for what cannot be enforced: ${error.message}` })
    )
  )
})

const readTools = (path: string) =>
  Effect.flatMap(
    Files.readText(path),
    (text) => Files.decodeJson(text, { schema: Schema.NonEmptyArray(Tool.Tool), where: path })
  )

const choiceOf = (name: string): Tool.Choice =>
  name === "auto" || name === "required" || name === "none" ? name : { name }

const calling = Effect.fnUntraced(function*(
  tools: ReadonlyArray<Tool.Tool>,
  choice: Tool.Choice,
  { asked, file }: Source
) {
  if (asked.raw) {
    return yield* new UsageError({ message: "--tools are told to the model by its chat template; leave out --raw" })
  }
  const messages = Prompt.conversation(asked)
  if (messages instanceof UsageError) return yield* messages
  const template = yield* Effect.fromResult(file.template)
  const { codec } = file
  const style = ReplyStyle.of(template, codec)
  const given = choice === "none" ? [] : tools
  const taken = yield* Effect.fromResult(Messages.make(template, style).write({ messages, tools: given }))
  const now = new Date(yield* Clock.currentTimeMillis)
  const rendered = yield* Effect.fromResult(
    template.render({ ...taken, variables: { enable_thinking: asked.thinking } }, now)
  )
  const thinkingOpen = ReplyStyle.isThinkingOpen(style, rendered)
  const grammar = yield* Effect.fromResult(
    ToolGrammar.toolGrammar(style, tools, choice, { thinkingOpen, mayThink: asked.thinking })
  )
  const parts: Array<Reply.Part> = []
  const constraint = Matcher.make(grammar, tableOf(codec))
  const form: Form = {
    prompt: codec.encodeSegments(rendered.segments),
    request: { constraint },
    isWhole: constraint.isComplete,
    texts: (tokens) => {
      const reply = Reply.make(style, { toolsGiven: given, thinkingOpen })
      const line = lines()
      const take = (some: ReadonlyArray<Reply.Part>): string => {
        parts.push(...some)
        return some.map(line).join("")
      }
      return Stream.concat(
        Stream.map(tokens, (token) => take(reply.push(token))),
        Stream.suspend(() => Stream.make(take(reply.end())))
      )
    },
    told: () => summary(parts)
  }
  return form
})

/** Prints text as it comes, and a call as a line of JSON when it is complete. Thinking is left out. */
const lines = (): (part: Reply.Part) => string => {
  let name = ""
  let json = ""
  let isLineOpen = false
  return (part) => {
    switch (part.type) {
      case "reasoning":
        return ""
      case "text":
        isLineOpen = !part.text.endsWith("\n")
        return part.text
      case "tool-start":
        name = part.name
        json = ""
        return ""
      case "tool-arguments":
        json += part.text
        return ""
      case "tool-end": {
        const before = isLineOpen ? "\n" : ""
        isLineOpen = true
        const call = part.complete
          ? { name, arguments: JSON.parse(json) as unknown }
          : { name, arguments: json, complete: false }
        return before + JSON.stringify(call)
      }
    }
  }
}

const summary = (parts: ReadonlyArray<Reply.Part>) => {
  const textOf = (type: "reasoning" | "text"): string =>
    parts.map((part) => part.type === type ? part.text : "").join("")
  const reasoning = textOf("reasoning")
  return {
    text: textOf("text"),
    ...(reasoning === "" ? {} : { reasoning }),
    tool_calls: parts.flatMap((part) =>
      part.type === "tool-start"
        ? [{
          name: part.name,
          arguments: parts.map((other) =>
            other.type === "tool-arguments" && other.index === part.index ? other.text : ""
          ).join(""),
          complete: parts.some((other) => other.type === "tool-end" && other.index === part.index && other.complete)
        }]
        : []
    )
  }
}
