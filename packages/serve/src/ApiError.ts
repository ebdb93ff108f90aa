/** What a client is told when its request fails: OpenAI's form of an error, with its HTTP status. */
import type { EngineError } from "@tg/engine/Engine"
import { Effect, Schema } from "effect"
import { HttpServerRespondable, HttpServerResponse } from "effect/http"

/** The kinds of errors that OpenAI's clients know. */
export const Type = Schema.Literals([
  "invalid_request_error",
  "authentication_error",
  "permission_error",
  "not_found_error",
  "rate_limit_error",
  "server_error"
])

/** The body of a failed request. */
export const Body = Schema.Struct({
  error: Schema.Struct({
    message: Schema.String,
    type: Type,
    /** The field that is wrong, such as `messages[0].content`. */
    param: Schema.NullOr(Schema.String),
    code: Schema.NullOr(Schema.String)
  })
}).annotate({ identifier: "Error" })

/** A request that fails. It answers for itself: as a response, or as the last event of a stream. */
export class ApiError extends Schema.TaggedError<ApiError>()("ApiError", {
  status: Schema.Int,
  type: Type,
  message: Schema.String,
  param: Schema.NullOr(Schema.String),
  code: Schema.NullOr(Schema.String),
  /** Seconds after which asking again may help. */
  retryAfter: Schema.optional(Schema.Int),
  /** Methods that the path does have. */
  allow: Schema.optional(Schema.String)
}) {
  /** The error as the client reads it. */
  get body(): typeof Body.Type {
    const { code, message, param, type } = this
    return { error: { message, type, param, code } }
  }

  /** The error as a response. */
  get response(): HttpServerResponse.HttpServerResponse {
    const headers: Record<string, string> = {}
    if (this.retryAfter !== undefined) headers["retry-after"] = String(this.retryAfter)
    if (this.allow !== undefined) headers["allow"] = this.allow
    // the rest of a body that nobody waits for would be taken for the next request
    if (this.status === 408 || this.status === 413) headers["connection"] = "close"
    if (this.status === 401) headers["www-authenticate"] = "Bearer"
    return HttpServerResponse.jsonUnsafe(this.body, { status: this.status, headers })
  }

  [HttpServerRespondable.symbol](): Effect.Effect<HttpServerResponse.HttpServerResponse> {
    return Effect.succeed(this.response)
  }
}

const make = (status: number, type: typeof Type.Type) =>
(
  message: string,
  more: { readonly param?: string | null; readonly code?: string; readonly retryAfter?: number } = {}
): ApiError => new ApiError({ status, type, message, ...more, param: more.param ?? null, code: more.code ?? null })

/** A request that makes no sense: a field is wrong. */
export const invalid = make(400, "invalid_request_error")
/** The key is missing, or another. */
export const unauthenticated = make(401, "authentication_error")
/** The request comes from where none may come from. */
export const forbidden = make(403, "permission_error")
/** There is no such path, or no such model. */
export const notFound = make(404, "not_found_error")
/** The request did not arrive in time. */
export const tooSlow = make(408, "invalid_request_error")
/** The request is too large. */
export const tooLarge = make(413, "invalid_request_error")
/** Too many requests wait. */
export const tooMany = make(429, "rate_limit_error")
/** The request cannot be answered at all. */
export const notImplemented = make(501, "invalid_request_error")
/** The server is short of something, or about to end. */
export const unavailable = make(503, "server_error")
/** Something went wrong here. */
export const failed = make(500, "server_error")

/** What the client is told of an error of the engine. */
export const fromEngine = (error: EngineError, param: string): ApiError => {
  switch (error._tag) {
    case "ContextFull":
      return invalid(error.message, { param, code: "context_length_exceeded" })
    case "InvalidTokens":
      return invalid(error.message, { param, code: "invalid_tokens" })
    case "InvalidSampling":
      return invalid(error.message, { param: error.setting.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`) })
    case "InvalidRequest":
      return invalid(error.message, { param: error.field, code: "invalid_value" })
    default:
      return failed(error.message, { code: error._tag })
  }
}
