/** The engine as Effect's `LanguageModel`. */
import { Grammar, JsonSchema, Matcher, TokenTable } from "@tg/constrain"
import * as Messages from "@tg/dialogue/Messages"
import * as Reply from "@tg/dialogue/Reply"
import * as ReplyStyle from "@tg/dialogue/ReplyStyle"
import type { Choice, Tool } from "@tg/dialogue/Tool"
import * as ToolGrammar from "@tg/dialogue/ToolGrammar"
import { Conversations } from "@tg/engine/Conversations"
import type { Constraint, Request } from "@tg/engine/Engine"
import type * as ModelFile from "@tg/engine/ModelFile"
import * as Sampler from "@tg/engine/Sampler"
import type { InvalidMetadata, TemplateFailed, TokenizerError } from "@tg/tokenizer/TokenizerError"
import { Context, DateTime, Effect, Layer, Result, Stream } from "effect"
import { AiError, IdGenerator, LanguageModel } from "effect/ai"
import { invalid, messagesOf, toolsOf } from "./Conversation.ts"
import * as Parts from "./Parts.ts"

/** How to answer, beyond what a prompt says. */
export interface Settings extends Partial<Sampler.Settings>, Pick<Request, "penalties" | "bias" | "stop"> {
  /** End after this many tokens; otherwise where the model or the context ends. */
  readonly maxTokens?: number | undefined
  /** Let the model think first, if its template can ask for it. */
  readonly thinking?: boolean | undefined
}

/** The settings of a request: `Effect.provideService(Settings, { temperature: 0.7 })`. Those of the layer stand behind them. */
export const Settings = Context.Reference<Settings>("@tg/ai/Settings", { defaultValue: () => ({}) })

/** Why a model is no language model to talk with. */
export type ModelError = TokenizerError | ModelFile.NoChatTemplate | InvalidMetadata | TemplateFailed

/**
 * A schema whose objects have no properties but those it names, unless it says what others are: what nobody decodes need not
 * be written. Parts of `allOf` stay as they are, since they are one object together.
 */
export const closed = (schema: unknown): unknown => {
  if (Array.isArray(schema)) return schema.map(closed)
  if (typeof schema !== "object" || schema === null) return schema
  const inside = Object.entries(schema).map(([keyword, value]) =>
    keyword === "properties" || keyword === "$defs"
      ? [keyword, Object.fromEntries(Object.entries(value).map(([name, own]) => [name, closed(own)]))]
      : ["items", "prefixItems", "anyOf", "oneOf"].includes(keyword)
      ? [keyword, closed(value)]
      : [keyword, value]
  )
  const others = "additionalProperties" in schema ? schema.additionalProperties : true
  const isOpen = "properties" in schema && others === true && !("allOf" in schema)
  return { ...Object.fromEntries(inside), ...(isOpen ? { additionalProperties: false } : {}) }
}

/** JSON texts of a schema's values, behind the thinking that the prompt has opened. */
const objectGrammar = (
  schema: unknown,
  thinking: ReplyStyle.ReplyStyle["thinking"]
): Result.Result<Grammar.Grammar, AiError.AiError> =>
  Result.mapBoth(JsonSchema.compile(schema), {
    onFailure: ({ message: description }) =>
      AiError.make({
        module: "@tg/ai",
        method: "generateObject",
        reason: new AiError.UnsupportedSchemaError({ description })
      }),
    onSuccess: (json) => {
      if (thinking === undefined) return json
      const { id, text } = thinking.close
      const closed = id === undefined
        ? Grammar.until([text])
        : Grammar.sequence(Grammar.anyText, Grammar.token(id))
      return Grammar.sequence(closed, json)
    }
  })

/** The language model of the conversations: `defaults` are for what a request's settings do not say. */
export const make: (
  defaults?: Settings
) => Effect.Effect<LanguageModel.LanguageModel, ModelError, Conversations> = Effect
  .fnUntraced(function*(defaults = {}) {
    const { generate, model, tokenizer } = yield* Conversations
    const codec = yield* tokenizer
    const template = yield* Effect.fromResult(model.template)
    const style = ReplyStyle.of(template, codec)
    const writer = Messages.make(template, style)
    let table: TokenTable.TokenTable | undefined

    /** What the answer is held to: a schema, or calls that are calls of the tools. */
    const grammarOf = (
      { responseFormat, toolChoice }: LanguageModel.ProviderOptions,
      tools: ReadonlyArray<Tool>,
      { mayThink, thinkingOpen }: { readonly mayThink: boolean; readonly thinkingOpen: boolean }
    ): Result.Result<Grammar.Grammar | undefined, AiError.AiError> => {
      if (responseFormat.type === "json") {
        const { jsonSchema } = LanguageModel.defaultCodecTransformer(responseFormat.schema)
        return objectGrammar(closed(jsonSchema), thinkingOpen ? style.thinking : undefined)
      }
      if (tools.length === 0) return Result.succeed(undefined)
      return Result.mapError(
        ToolGrammar.toolGrammar(style, tools, choiceOf(toolChoice), { mayThink, thinkingOpen }),
        ({ message }) => invalid("tools", message)
      )
    }

    /** A matcher of it, at the start. */
    const constraintOf = (
      grammar: Grammar.Grammar | undefined
    ): Result.Result<Constraint | undefined, AiError.AiError> => {
      if (grammar === undefined) return Result.succeed(undefined)
      table ??= TokenTable.make(ToolGrammar.vocabularyOf(codec))
      return Result.mapError(Matcher.makeResult(grammar, table), ({ message }) => invalid("schema", message))
    }

    const answer = Effect.fnUntraced(function*(options: LanguageModel.ProviderOptions) {
      const settings = { ...defaults, ...yield* Settings }
      const { bias, maxTokens, penalties, stop, thinking = false, ...sampling } = settings
      const tools = yield* Effect.fromResult(toolsOf(options))
      const messages = yield* Effect.fromResult(messagesOf(options.prompt))
      const taken = yield* Effect.fromResult(Result.mapError(
        writer.write({ messages, tools }),
        ({ message }) => invalid("prompt", message)
      ))
      const variables = { enable_thinking: thinking && options.responseFormat.type === "text" }
      const now = DateTime.toDateUtc(yield* DateTime.now)
      const prompt = yield* Effect.fromResult(Result.mapError(
        template.render({ ...taken, variables }, now),
        ({ message }) => invalid("prompt", message)
      ))
      const thinkingOpen = ReplyStyle.isThinkingOpen(style, prompt)
      const grammar = yield* Effect.fromResult(grammarOf(options, tools, { mayThink: thinking, thinkingOpen }))
      const generation = yield* Effect.mapError(
        generate({
          tokens: codec.encodeSegments(prompt.segments),
          maxTokens,
          stop,
          penalties,
          bias,
          sampling: { ...Sampler.greedy, ...sampling },
          constraint: yield* Effect.fromResult(constraintOf(grammar))
        }),
        Parts.failed
      )
      const reply = Reply.make(style, { toolsGiven: tools, thinkingOpen })
      return Parts.stream(generation, reply, yield* IdGenerator.IdGenerator)
    })

    const streamText = (options: LanguageModel.ProviderOptions) => Stream.unwrap(answer(options))
    return yield* LanguageModel.make({
      streamText,
      generateText: (options) => Effect.map(Stream.runCollect(streamText(options)), Parts.collect),
      supportsSystemMessagesInHistory: Effect.succeed(true)
    })
  })

/** Whether a call is asked for, whatever the model would rather say. The tools are those of the choice already. */
const choiceOf = (choice: LanguageModel.ProviderOptions["toolChoice"]): Choice => {
  if (typeof choice === "string") return choice
  return "tool" in choice ? { name: choice.tool } : choice.mode ?? "auto"
}

/** The language model as a service. */
export const layer = (
  defaults?: Settings
): Layer.Layer<LanguageModel.LanguageModel, ModelError, Conversations> =>
  Layer.effect(LanguageModel.LanguageModel, make(defaults))
