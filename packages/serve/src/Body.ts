/** Reading what a client sends: bounded in bytes, time and depth, then checked field by field. */
import { Context, Effect, Layer, Option, Result, type Schema, SchemaIssue, SchemaParser, Stream } from "effect"
import type { HttpServerRequest } from "effect/http"
import * as ApiError from "./ApiError.ts"
import { isDeeper, short } from "./internal/json.ts"
import type { Limits } from "./Limits.ts"

/** Reads the bodies of requests. */
export class Bodies extends Context.Service<Bodies, {
  /** The JSON value of a body. */
  readonly read: (request: HttpServerRequest.HttpServerRequest) => Effect.Effect<unknown, ApiError.ApiError>
}>()("@tg/serve/Bodies") {
  /** Bodies within these limits. */
  static readonly layer = (limits: Limits): Layer.Layer<Bodies> => Layer.sync(Bodies, () => make(limits))
}

const make = (limits: Limits): Bodies["Service"] => {
  // the bytes of all bodies that have been received in part
  let held = 0
  const text = (request: HttpServerRequest.HttpServerRequest) =>
    Effect.suspend(() => {
      const announced = Number(request.headers["content-length"] ?? 0)
      if (announced > limits.bodyBytes) return Effect.fail(tooLarge(limits))
      const pieces: Array<Uint8Array> = []
      let length = 0
      return request.stream.pipe(
        Stream.mapError(() => ApiError.invalid("the body of the request broke off", { code: "invalid_body" })),
        Stream.runForEach((piece) => {
          length += piece.length
          held += piece.length
          pieces.push(piece)
          return length > limits.bodyBytes
            ? Effect.fail(tooLarge(limits))
            : held > limits.heldBytes
            ? Effect.fail(busy)
            : Effect.void
        }),
        Effect.timeoutOrElse({
          duration: limits.bodySeconds * 1000,
          orElse: () =>
            Effect.fail(
              ApiError.tooSlow(`the body did not arrive within ${limits.bodySeconds} s`, { code: "request_timeout" })
            )
        }),
        Effect.flatMap(() => Effect.fromResult(decodeText(pieces, length))),
        Effect.ensuring(Effect.sync(() => {
          held -= length
        }))
      )
    })
  return Bodies.of({
    read: Effect.fn("Bodies.read")(function*(request) {
      const encoding = request.headers["content-encoding"] ?? "identity"
      if (encoding !== "identity") {
        return yield* ApiError.invalid(`the body comes as ${short(encoding, 40)}; send it as it is`, {
          code: "unsupported_encoding"
        })
      }
      const body = yield* text(request)
      if (isDeeper(body, limits.depth)) {
        return yield* ApiError.invalid(`the body is nested deeper than ${limits.depth} levels, which is the limit`, {
          code: "too_deep"
        })
      }
      return yield* Effect.fromResult(parse(body))
    })
  })
}

const tooLarge = ({ bodyBytes }: Limits): ApiError.ApiError =>
  ApiError.tooLarge(`the body has more than ${bodyBytes} bytes, which is the limit`, { code: "body_too_large" })

const busy = ApiError.unavailable("too many large requests arrive at the same time; ask again in a second", {
  code: "busy",
  retryAfter: 1
})

const decodeText = (pieces: ReadonlyArray<Uint8Array>, length: number): Result.Result<string, ApiError.ApiError> => {
  const bytes = new Uint8Array(length)
  let at = 0
  for (const piece of pieces) {
    bytes.set(piece, at)
    at += piece.length
  }
  return Result.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(bytes),
    catch: () => ApiError.invalid("the body is no UTF-8 text", { code: "invalid_body" })
  })
}

const parse = (text: string): Result.Result<unknown, ApiError.ApiError> =>
  Result.try({
    try: (): unknown => JSON.parse(text),
    catch: (cause) =>
      ApiError.invalid(`the body is no JSON: ${short(cause instanceof Error ? cause.message : String(cause))}`, {
        code: "invalid_json"
      })
  })

/** Fields of OpenAI that are refused, and why. */
const refused: Readonly<Record<string, string>> = {
  image_url: "images cannot be read: this server reads text parts only",
  input_audio: "audio cannot be read: this server reads text parts only",
  file: "files cannot be read: this server reads text parts only",
  functions: "give functions as tools",
  function_call: "choose a function with tool_choice",
  audio: "this server answers with text only",
  web_search_options: "this server does not search the web",
  prediction: "predicted outputs are not used",
  best_of: "ask for several answers with n, and choose among them",
  suffix: "text cannot be inserted in front of a suffix"
}

const nameOf = (path: ReadonlyArray<PropertyKey>): string =>
  path.reduce<string>(
    (name, key) => typeof key === "number" ? `${name}[${key}]` : name === "" ? String(key) : `${name}.${String(key)}`,
    ""
  )

const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) =>
    issue._tag === "UnexpectedKey"
      ? "unknown"
      : issue._tag === "MissingKey"
      ? "missing"
      : SchemaIssue.defaultLeafHook(issue)
})

/** Checks a value against a schema. The error names the first field that is wrong or not known. */
export const decode = <A>(schema: Schema.Decoder<A>) => {
  const run = SchemaParser.decodeUnknownResult(schema, { onExcessProperty: "error" })
  return (value: unknown): Result.Result<A, ApiError.ApiError> => Result.mapError(run(value), (issue) => wrong(issue))
}

const wrong = (issue: SchemaIssue.Issue): ApiError.ApiError => {
  const [first] = format(issue).issues
  const path = (first?.path ?? []).map((key) => typeof key === "object" ? key.key : key)
  const param = nameOf(path)
  if (param === "") return ApiError.invalid("the body has to be a JSON object", { code: "invalid_body" })
  const reason = Option.fromNullishOr(refused[String(path.at(-1))])
  switch (first?.message) {
    case "unknown":
      return ApiError.invalid(
        Option.match(reason, {
          onNone: () => `${param} is not a field that this server knows; leave it out`,
          onSome: (text) => `${param} is not supported: ${text}`
        }),
        { param, code: Option.isSome(reason) ? "unsupported_parameter" : "unknown_parameter" }
      )
    case "missing":
      return ApiError.invalid(`${param} is missing`, { param, code: "missing_required_parameter" })
    default:
      return ApiError.invalid(`${param}: ${short(first?.message.replace(" | undefined", "") ?? "invalid")}`, {
        param,
        code: "invalid_value"
      })
  }
}
