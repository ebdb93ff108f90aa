/**
 * Everything that can be wrong with a GGUF file, or with what a caller expects to find in one. Each error carries the
 * name of the source as `file`; `problem`, where present, separates the cases that share a tag.
 */
import { Schema } from "effect"

const cut = "the file may be cut short or damaged: compare its size and checksum with the publisher's"

/** The file does not start with the bytes `GGUF`. */
export class NotGguf extends Schema.TaggedError<NotGguf>()("NotGguf", {
  file: Schema.String,
  /** The first four bytes, in hexadecimal. */
  found: Schema.String
}) {
  override get message(): string {
    return `${this.file}: a GGUF file starts with 47475546 ("GGUF"), this one with ${this.found}; choose a GGUF file`
  }
}

/** The file is GGUF, of a version or a byte order that is not supported. */
export class UnsupportedVersion extends Schema.TaggedError<UnsupportedVersion>()("UnsupportedVersion", {
  file: Schema.String,
  version: Schema.Finite,
  byteOrder: Schema.Literals(["little-endian", "big-endian"])
}) {
  override get message(): string {
    const action = this.byteOrder === "big-endian" ? "convert it to little-endian" : "convert it to version 3"
    return `${this.file}: versions 2 and 3 in little-endian order are supported, found version ${this.version} in ` +
      `${this.byteOrder} order; ${action}`
  }
}

/** The file ends inside a field. */
export class Truncated extends Schema.TaggedError<Truncated>()("Truncated", {
  file: Schema.String,
  reading: Schema.String,
  offset: Schema.Finite,
  needed: Schema.Finite,
  available: Schema.Finite
}) {
  override get message(): string {
    return `${this.file}: ${this.reading} needs ${this.needed} bytes at offset ${this.offset}, ${this.available} are ` +
      `left; ${cut}`
  }
}

/**
 * A count or a length exceeds what the file can hold (`beyond-file`), what the reader is willing to hold
 * (`beyond-limit`), what any model has (`implausible`), or what a number can represent (`beyond-2^53`).
 */
export class TooLarge extends Schema.TaggedError<TooLarge>()("TooLarge", {
  file: Schema.String,
  reading: Schema.String,
  offset: Schema.Finite,
  problem: Schema.Literals(["beyond-file", "beyond-limit", "implausible", "beyond-2^53"]),
  /** The count or length as stored, in decimal: it may exceed 2^53. */
  found: Schema.String,
  limit: Schema.Finite
}) {
  override get message(): string {
    const action = this.problem === "beyond-limit" ? "raise maxHeaderBytes if the file is genuine" : cut
    return `${this.file}: ${this.reading} before offset ${this.offset} is ${this.found}, at most ${this.limit} is ` +
      `possible (${this.problem}); ${action}`
  }
}

/** A string is not valid UTF-8 (reading) or not well-formed UTF-16 (writing). */
export class InvalidText extends Schema.TaggedError<InvalidText>()("InvalidText", {
  file: Schema.String,
  reading: Schema.String,
  offset: Schema.Finite
}) {
  override get message(): string {
    return `${this.file}: ${this.reading} at offset ${this.offset} is not valid Unicode text; ${cut}`
  }
}

/** A metadata key or value breaks the format. */
export class InvalidMetadata extends Schema.TaggedError<InvalidMetadata>()("InvalidMetadata", {
  file: Schema.String,
  key: Schema.String,
  problem: Schema.Literals([
    "duplicate-key",
    "unknown-value-type",
    "nested-array",
    "invalid-bool",
    "invalid-alignment",
    "value-range"
  ]),
  detail: Schema.String
}) {
  override get message(): string {
    return `${this.file}: metadata key ${JSON.stringify(this.key)}: ${this.detail} (${this.problem})`
  }
}

/** An entry of the tensor table breaks the format or does not fit the file. */
export class InvalidTensor extends Schema.TaggedError<InvalidTensor>()("InvalidTensor", {
  file: Schema.String,
  tensor: Schema.String,
  problem: Schema.Literals([
    "duplicate-name",
    "rank",
    "zero-dimension",
    "size-overflow",
    "unknown-type",
    "partial-block",
    "misaligned",
    "outside-file",
    "overlap",
    "data-length"
  ]),
  detail: Schema.String
}) {
  override get message(): string {
    return `${this.file}: tensor ${JSON.stringify(this.tensor)}: ${this.detail} (${this.problem})`
  }
}

/** A metadata key that a caller needs is absent. */
export class MissingKey extends Schema.TaggedError<MissingKey>()("MissingKey", {
  file: Schema.String,
  key: Schema.String,
  expected: Schema.String
}) {
  override get message(): string {
    return `${this.file}: needs the metadata key ${this.key} (${this.expected}), found none; the file may be of another ` +
      `architecture or from an incomplete conversion`
  }
}

/** A metadata value has another type, or lies outside the range, that a caller needs. */
export class WrongType extends Schema.TaggedError<WrongType>()("WrongType", {
  file: Schema.String,
  key: Schema.String,
  expected: Schema.String,
  found: Schema.String
}) {
  override get message(): string {
    return `${this.file}: the metadata key ${this.key} must be ${this.expected}, found ${this.found}; convert the file ` +
      `again`
  }
}

/** A tensor that a caller needs is absent. */
export class MissingTensor extends Schema.TaggedError<MissingTensor>()("MissingTensor", {
  file: Schema.String,
  tensor: Schema.String
}) {
  override get message(): string {
    return `${this.file}: needs the tensor ${this.tensor}, found none; the file may be of another architecture or from an ` +
      `incomplete conversion`
  }
}

/** Why a file cannot be read or written. */
export type GgufError =
  | NotGguf
  | UnsupportedVersion
  | Truncated
  | TooLarge
  | InvalidText
  | InvalidMetadata
  | InvalidTensor

/** Why a well-formed file does not have what a caller asked for. */
export type LookupError = MissingKey | WrongType | MissingTensor
