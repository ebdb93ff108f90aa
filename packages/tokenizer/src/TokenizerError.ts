/** Why a file's metadata gives no tokenizer or no chat template. */
import { Schema } from "effect"

/** A metadata key is missing, has another type, or holds a value that cannot be. */
export class InvalidMetadata extends Schema.TaggedError<InvalidMetadata>()("InvalidMetadata", {
  key: Schema.String,
  expected: Schema.String,
  found: Schema.String
}) {
  override get message(): string {
    return `${this.key}: expected ${this.expected}, found ${this.found}`
  }
}

/** The file names a tokenizer model or a pre-tokenizer that this package does not know. */
export class UnsupportedTokenizer extends Schema.TaggedError<UnsupportedTokenizer>()("UnsupportedTokenizer", {
  key: Schema.String,
  name: Schema.String,
  supported: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return `${this.key}: "${this.name}" is not supported; supported are ${this.supported.join(", ")}`
  }
}

/** Everything that can be wrong with a tokenizer's metadata. */
export const TokenizerError = Schema.Union([InvalidMetadata, UnsupportedTokenizer])
/** Everything that can be wrong with a tokenizer's metadata. */
export type TokenizerError = typeof TokenizerError.Type

/** A template cannot be read (`parse`), refuses a conversation (`render`), or hides whose text is whose (`trace`). */
export class TemplateFailed extends Schema.TaggedError<TemplateFailed>()("TemplateFailed", {
  stage: Schema.Literals(["parse", "render", "trace"]),
  reason: Schema.String
}) {
  override get message(): string {
    return `chat template, ${this.stage}: ${this.reason}`
  }
}
