/** Why a file's metadata gives no tokenizer or no chat template. */
import { Schema } from "effect"

/** A text for an error: in a damaged file it can be as long as the file. */
export const clip = (text: string): string => text.length <= 200 ? text : `${text.slice(0, 200)}…`

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
    return `${this.key}: "${clip(this.name)}" is not supported; supported are ${this.supported.join(", ")}`
  }
}

/** Everything that can be wrong with a tokenizer's metadata. */
export const TokenizerError = Schema.Union([InvalidMetadata, UnsupportedTokenizer])
/** Everything that can be wrong with a tokenizer's metadata. */
export type TokenizerError = typeof TokenizerError.Type

/**
 * A template cannot be read (`parse`), refuses a conversation (`render`), hides whose text is whose (`trace`), or asks for
 * more than there is for it (`budget`).
 */
export class TemplateFailed extends Schema.TaggedError<TemplateFailed>()("TemplateFailed", {
  stage: Schema.Literals(["parse", "render", "trace", "budget"]),
  reason: Schema.String,
  /** Which budget is used up, at stage `budget`. */
  budget: Schema.optionalKey(Schema.Literals(["source", "steps", "text", "work", "time", "depth"])),
  /** The template itself says that it cannot render this conversation: it is not damaged. */
  isRefusal: Schema.optionalKey(Schema.Boolean)
}) {
  override get message(): string {
    const budget = this.budget === undefined ? "" : ` of ${this.budget}`
    return `chat template, ${this.stage}${budget}: ${this.reason}`
  }
}

/** A template prints nothing of what a message says: it does not know its role. */
export class MessageDropped extends Schema.TaggedError<MessageDropped>()("MessageDropped", {
  /** Counted from one. */
  place: Schema.Int,
  role: Schema.String,
  /** The usual roles that it does know. */
  known: Schema.Array(Schema.String)
}) {
  override get message(): string {
    const known = this.known.length === 0
      ? "it prints messages of no role at all"
      : `its roles are ${this.known.join(", ")}`
    return `message ${this.place} has the role ${JSON.stringify(clip(this.role))}, and the model's chat template ` +
      `drops it; ${known}`
  }
}
