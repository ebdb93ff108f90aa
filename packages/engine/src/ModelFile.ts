/**
 * What a model file says about itself, checked: everything but its weights. Every command opens models through
 * `fromGguf`, so that all of them refuse the same files with the same errors.
 */
import type { ByteSource, ByteSourceError } from "@tg/gguf/ByteSource"
import type { Gguf } from "@tg/gguf/Gguf"
import type { GgufError, MissingKey, WrongType } from "@tg/gguf/GgufError"
import { GgufReader } from "@tg/gguf/GgufReader"
import * as Split from "@tg/gguf/Split"
import * as Family from "@tg/model-parts/Family"
import { ConfigError } from "@tg/model-parts/Keys"
import type { WeightError } from "@tg/model-parts/Weights"
import * as ChatTemplate from "@tg/tokenizer/ChatTemplate"
import { droppedMessage } from "@tg/tokenizer/Dropped"
import * as Tokenizer from "@tg/tokenizer/Tokenizer"
import type { InvalidMetadata, MessageDropped, TemplateFailed, TokenizerError } from "@tg/tokenizer/TokenizerError"
import { Effect, Option, Result, Schema } from "effect"

/** A model that can be loaded. */
export interface ModelFile extends Family.Model {
  readonly gguf: Gguf
  /** Its tokenizer. */
  readonly codec: Tokenizer.Codec
  /** Its chat template; why it has none, if it has none. */
  readonly template: Result.Result<ChatTemplate.Renderer, NoChatTemplate>
}

/** What turns a header into text and back. */
export interface TextParts {
  readonly tokenizer: Tokenizer.Making
  readonly chatTemplate: ChatTemplate.Making
}

/** A model file without a chat template was asked to chat. */
export class NoChatTemplate extends Schema.TaggedError<NoChatTemplate>()("NoChatTemplate", { file: Schema.String }) {
  override get message(): string {
    return `${this.file} has no chat template (tokenizer.chat_template), so messages cannot be turned into a prompt; ` +
      `give the prompt as it is with --raw, or choose a chat model`
  }
}

/** Why a header does not describe a model that can be loaded. */
export type HeaderError =
  | Family.UnknownArchitecture
  | ConfigError
  | WeightError
  | MissingKey
  | Split.SplitError
  | WrongType
  | TokenizerError
  | TemplateFailed
  | MessageDropped

/** Why a file is not a model that can be loaded. */
export type ModelError = GgufError | ByteSourceError | HeaderError

const usual: TextParts = { tokenizer: { make: Tokenizer.make }, chatTemplate: { make: ChatTemplate.make } }

/** The model a header describes. A part of a split model is none. */
export const fromGguf = (
  gguf: Gguf,
  families: Family.Registry,
  parts: TextParts = usual
): Result.Result<ModelFile, HeaderError> =>
  Result.gen(function*() {
    const part = yield* Split.partOf(gguf)
    if (part !== undefined) return yield* Result.fail(Split.single(gguf.name, part))
    yield* Split.checkWhole(gguf)
    const family = yield* Family.familyOf(families, gguf)
    const model = yield* family.modelOf(gguf)
    yield* checkVocabulary(gguf, model.config)
    const whole = Family.withChat(gguf, family)
    const codec = yield* parts.tokenizer.make(whole.metadata)
    const template = yield* templateOf(whole, codec, parts)
    if (Result.isSuccess(template)) yield* checkTemplate(template.success)
    return { ...model, gguf: whole, codec, template }
  })

/** The same with the `Tokenizer` and the `ChatTemplate` that are in force. */
export const ofGguf = (gguf: Gguf, families: Family.Registry): Effect.Effect<ModelFile, HeaderError> =>
  Effect.gen(function*() {
    const parts = { tokenizer: yield* Tokenizer.Tokenizer, chatTemplate: yield* ChatTemplate.ChatTemplate }
    return yield* Effect.fromResult(fromGguf(gguf, families, parts))
  })

/** Reads and checks the header of a file, with the `GgufReader` that is in force. */
export const open = (source: ByteSource["Service"]): Effect.Effect<ModelFile, ModelError, Family.Families> =>
  Effect.gen(function*() {
    const families = yield* Family.Families
    const { read } = yield* GgufReader
    return yield* ofGguf(yield* read(source), families)
  })

/** The chat template of a file; why it has none, if it has none. */
const templateOf = (
  { metadata, name }: Gguf,
  codec: Tokenizer.Codec,
  { chatTemplate }: TextParts
): Result.Result<ModelFile["template"], InvalidMetadata | TemplateFailed> =>
  metadata.has("tokenizer.chat_template")
    ? Result.map(chatTemplate.make(metadata, codec), (template) => Result.succeed(template))
    : Result.succeed(Result.fail(new NoChatTemplate({ file: name })))

/** A token without a row of the embedding reads beside it; a row without a token is printed as nothing. */
const checkVocabulary = (
  gguf: Gguf,
  { vocabulary }: Family.ModelConfig
): Result.Result<void, ConfigError> => {
  const tokens = gguf.metadata.get("tokenizer.ggml.tokens")
  // what else is wrong with it, the tokenizer says
  if (tokens?.type !== "array" || tokens.value.length === vocabulary) return Result.succeed(undefined)
  return Result.fail(
    new ConfigError({
      file: gguf.name,
      key: "tokenizer.ggml.tokens",
      message:
        `${gguf.name}: tokenizer.ggml.tokens has ${tokens.value.length} tokens, and the model has a vocabulary ` +
        `of ${vocabulary}; convert the model again`
    })
  )
}

/** The shortest conversation, as commands render one: without thinking. */
const trial = {
  messages: [{ role: "user", content: "Hi" }],
  variables: { enable_thinking: false }
}
/** All tries of a template together, in milliseconds: of a real one they take ten. */
const trialMillis = 3000

const tryOf = (template: ChatTemplate.Renderer) => {
  const until = Date.now() + trialMillis
  return (messages: ReadonlyArray<ChatTemplate.Message>) =>
    template.render({ ...trial, messages }, new Date(0), { until })
}

/**
 * Why a model that can be loaded does not answer a message by itself: the file has no chat template, or one that refuses the message
 * because it asks for a system text or tools beside it.
 */
export const chatRefusal = ({ template }: Pick<ModelFile, "template">): NoChatTemplate | TemplateFailed | undefined =>
  Option.getOrUndefined(
    Result.getFailure(Result.flatMap(template, (template) => tryOf(template)(trial.messages)))
  )

/** A template prints what a user says in the shortest conversation, or refuses that itself. */
const checkTemplate = (template: ChatTemplate.Renderer): Result.Result<void, TemplateFailed | MessageDropped> =>
  Result.gen(function*() {
    const render = tryOf(template)
    const rendered = render(trial.messages)
    if (Result.isSuccess(rendered)) {
      const dropped = droppedMessage(trial.messages, render)
      if (dropped !== undefined) return yield* Result.fail(dropped)
    } else if (rendered.failure.isRefusal !== true) return yield* Result.fail(rendered.failure)
  })
