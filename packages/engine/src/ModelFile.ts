/** What a model file says about itself, checked: everything but its weights. */
import type { ByteSource, ByteSourceError } from "@tg/gguf/ByteSource"
import { type Gguf, read } from "@tg/gguf/Gguf"
import type { GgufError, WrongType } from "@tg/gguf/GgufError"
import * as Split from "@tg/gguf/Split"
import * as Config from "@tg/models-deepseek2/Config"
import * as Weights from "@tg/models-deepseek2/Weights"
import * as ChatTemplate from "@tg/tokenizer/ChatTemplate"
import * as Tokenizer from "@tg/tokenizer/Tokenizer"
import type { InvalidMetadata, TemplateFailed, TokenizerError } from "@tg/tokenizer/TokenizerError"
import { Effect, Result, Schema } from "effect"

/** A model that can be loaded. */
export interface ModelFile {
  readonly gguf: Gguf
  readonly config: Config.Config
  readonly weights: Weights.ModelWeights
}

/** A model file without a chat template was asked to chat. */
export class NoChatTemplate extends Schema.TaggedError<NoChatTemplate>()("NoChatTemplate", { file: Schema.String }) {
  override get message(): string {
    return `${this.file} has no chat template (tokenizer.chat_template), so messages cannot be turned into a prompt; ` +
      `give the prompt as it is with --raw, or choose a chat model`
  }
}

/** Why a header does not describe a model that can be loaded. */
export type HeaderError = Config.ConfigError | Weights.WeightError | Split.SplitError | WrongType

/** Why a file is not a model that can be loaded. */
export type ModelError = GgufError | ByteSourceError | HeaderError

/** The model a header describes. A part of a split model is none. */
export const fromGguf = (gguf: Gguf): Result.Result<ModelFile, HeaderError> =>
  Result.gen(function*() {
    const part = yield* Split.partOf(gguf)
    if (part !== undefined) return yield* Result.fail(Split.single(gguf.name, part))
    const config = yield* Config.fromMetadata(gguf)
    const weights = yield* Weights.find(config, gguf)
    return { gguf, config, weights }
  })

/** Reads and checks the header of a file. */
export const open = (source: ByteSource["Service"]): Effect.Effect<ModelFile, ModelError> =>
  Effect.flatMap(read(source), (gguf) => Effect.fromResult(fromGguf(gguf)))

/** The tokenizer of a file. */
export const tokenizer = (gguf: Gguf): Result.Result<Tokenizer.Codec, TokenizerError> => Tokenizer.make(gguf.metadata)

/** The chat template of a file. */
export const chatTemplate = (
  gguf: Gguf,
  codec: Tokenizer.Codec
): Result.Result<ChatTemplate.Renderer, NoChatTemplate | InvalidMetadata | TemplateFailed> =>
  gguf.metadata.has("tokenizer.chat_template")
    ? ChatTemplate.make(gguf.metadata, codec)
    : Result.fail(new NoChatTemplate({ file: gguf.name }))
