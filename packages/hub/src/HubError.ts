/** What goes wrong between here and a server, and on the disk. */
import { Schema } from "effect"

/** A request that got no usable answer. */
export class HttpError extends Schema.TaggedError<HttpError>()("HttpError", {
  /** Without what follows a question mark: that may be a secret. */
  url: Schema.String,
  problem: Schema.Literals([
    /** 401. */
    "unauthorized",
    /** 403. */
    "forbidden",
    /** 404 or 410. */
    "not-found",
    /** 429 or 503, and the server asked to come back later. */
    "busy",
    /** Another status. */
    "status",
    /** There is no such host, or nobody answers, or the connection broke. */
    "unreachable",
    /** Nothing came for too long. */
    "stalled",
    /** A redirection that is not followed. */
    "redirect",
    /** The answer to a question about a repository has another form than known. */
    "answer"
  ]),
  detail: Schema.String,
  retryAfterMillis: Schema.optionalKey(Schema.Number)
}) {
  override get message(): string {
    return `${this.url}: ${this.detail}`
  }

  /** Whether asking again may help. */
  get isTransient(): boolean {
    return this.problem === "busy" || this.problem === "unreachable" || this.problem === "stalled"
  }
}

/** A server that answers, but not with the bytes that were asked for. */
export class TransferError extends Schema.TaggedError<TransferError>()("TransferError", {
  url: Schema.String,
  problem: Schema.Literals([
    /** It sends the whole file where a part was asked for. */
    "ignores-ranges",
    /** It sends another part than was asked for, or does not say which. */
    "wrong-range",
    /** The file there is no longer the one it was. */
    "changed",
    "too-much",
    "too-little",
    /** It does not say how long the file is. */
    "no-size"
  ]),
  detail: Schema.String
}) {
  override get message(): string {
    return `${this.url}: ${this.detail} (${this.problem})`
  }
}

/** A file whose bytes are not those of its hash. */
export class WrongHash extends Schema.TaggedError<WrongHash>()("WrongHash", {
  file: Schema.String,
  expected: Schema.String,
  found: Schema.String
}) {
  override get message(): string {
    return `${this.file} has the SHA-256 ${this.found} and should have ${this.expected}: the server sent other bytes. ` +
      "What came was thrown away; pull it again, and if it stays so, tell who published it"
  }
}

/** The store cannot do what it has to. */
export class StoreError extends Schema.TaggedError<StoreError>()("StoreError", {
  path: Schema.String,
  problem: Schema.Literals([
    /** The disk is full, or will be. */
    "no-space",
    /** Another process has it. */
    "in-use",
    /** Reading or writing failed. */
    "io",
    /** There is no model of this name. */
    "unknown-name"
  ]),
  detail: Schema.String
}) {
  override get message(): string {
    return `${this.path}: ${this.detail}`
  }
}

/** Why a model could not be fetched. */
export type FetchError = HttpError | TransferError | WrongHash | StoreError
