/** Why something gives no grammar, or a token is refused. */
import { Schema } from "effect"

/** A JSON schema asks for something that would not be enforced exactly, or is no schema. */
export class UnsupportedSchema extends Schema.TaggedError<UnsupportedSchema>()("UnsupportedSchema", {
  /** Where in the schema, as a JSON pointer that begins with `#`. */
  path: Schema.String,
  /** The keyword that is in the way. */
  keyword: Schema.String,
  reason: Schema.String
}) {
  override get message(): string {
    return `${this.path}: ${this.keyword}: ${this.reason}`
  }
}

/** A regular expression is no regular expression, or is none of the kind that an automaton can match. */
export class UnsupportedRegex extends Schema.TaggedError<UnsupportedRegex>()("UnsupportedRegex", {
  pattern: Schema.String,
  /** Where in the pattern, in UTF-16 units. */
  offset: Schema.Int,
  reason: Schema.String
}) {
  override get message(): string {
    return `regular expression /${this.pattern}/, at ${this.offset}: ${this.reason}`
  }
}

/** A GBNF grammar cannot be read, or cannot be matched. */
export class UnsupportedGrammar extends Schema.TaggedError<UnsupportedGrammar>()("UnsupportedGrammar", {
  line: Schema.Int,
  column: Schema.Int,
  reason: Schema.String
}) {
  override get message(): string {
    return `grammar, line ${this.line}, column ${this.column}: ${this.reason}`
  }
}

/** A grammar matches no text at all, or calls itself before it reads anything. */
export class InvalidGrammar extends Schema.TaggedError<InvalidGrammar>()("InvalidGrammar", { reason: Schema.String }) {
  override get message(): string {
    return `grammar: ${this.reason}`
  }
}

/** A matcher was given a token that its mask forbids. */
export class RejectedToken extends Schema.TaggedError<RejectedToken>()("RejectedToken", {
  id: Schema.Int,
  reason: Schema.String
}) {
  override get message(): string {
    return `token ${this.id}: ${this.reason}`
  }
}
