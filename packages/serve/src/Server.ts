/** The server: OpenAI's routes over the conversations of a model. */
import { Conversations } from "@tg/engine/Conversations"
import { Cause, Context, Effect, Layer, Metric, Option } from "effect"
import { Digest } from "effect/crypto"
import { HttpRouter, HttpServer, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import { PrometheusMetrics } from "effect/observability"
import { Answers } from "./Answers.ts"
import * as Api from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import { Bodies, decode } from "./Body.ts"
import * as Chat from "./Chat.ts"
import * as ChatReply from "./ChatReply.ts"
import { ChatRequest } from "./ChatRequest.ts"
import * as Complete from "./Complete.ts"
import * as CompletionReply from "./CompletionReply.ts"
import { CompletionRequest } from "./CompletionRequest.ts"
import { FairQueue } from "./FairQueue.ts"
import * as Guard from "./Guard.ts"
import type { Limits } from "./Limits.ts"
import * as Metrics from "./Metrics.ts"
import * as Responses from "./Responses.ts"
import { type Names, Served } from "./Served.ts"

/** How to serve a model. */
export interface Options {
  readonly names: Names
  readonly access: Guard.Access
  readonly limits: Limits
}

/**
 * Who a request comes from, as far as its connection tells: requests of different clients take turns. By default the address.
 */
export const ClientOf = Context.Reference<(request: HttpServerRequest.HttpServerRequest) => string>(
  "@tg/serve/ClientOf",
  { defaultValue: () => ({ remoteAddress }) => Option.getOrElse(remoteAddress, () => "") }
)

const paths: Readonly<Record<string, string>> = {
  "/v1/models": "GET",
  "/v1/chat/completions": "POST",
  "/v1/completions": "POST",
  "/v1/embeddings": "POST",
  "/health": "GET",
  "/metrics": "GET",
  "/openapi.json": "GET"
}

const decodeChat = decode(ChatRequest)
const decodeCompletion = decode(CompletionRequest)

const counted = (value: unknown, limit: number, field: string): ApiError.ApiError | undefined => {
  const items: unknown = typeof value === "object" && value !== null ? Reflect.get(value, field) : undefined
  return Array.isArray(items) && items.length > limit
    ? ApiError.invalid(`${field} has ${items.length} items; this server takes up to ${limit}`, {
      param: field,
      code: "too_many_items"
    })
    : undefined
}

/** The JSON of a body, with no more items in a field than the server takes: told before they are looked at one by one. */
const readBody = Effect.fnUntraced(function*(limits: Limits, field: string) {
  const bodies = yield* Bodies
  const value = yield* bodies.read(yield* HttpServerRequest.HttpServerRequest)
  const tooMany = field === "prompt" && isIds(value) ? undefined : counted(value, limits.messages, field)
  return tooMany === undefined ? value : yield* tooMany
})

// token ids are one prompt, however many they are
const isIds = (value: unknown): boolean => {
  const prompt: unknown = typeof value === "object" && value !== null ? Reflect.get(value, "prompt") : undefined
  return Array.isArray(prompt) && typeof prompt[0] === "number"
}

const chat = Effect.fn("serve.chat")(function*(limits: Limits) {
  const request = yield* Effect.fromResult(decodeChat(yield* readBody(limits, "messages")))
  const client = (yield* ClientOf)(yield* HttpServerRequest.HttpServerRequest)
  const { head, job } = yield* Chat.plan(request, { client, limits, served: yield* Served })
  const events = yield* (yield* Answers).begin(job)
  const { push, usage } = ChatReply.make(head)
  const writer: Responses.Writer<ChatReply.ChatChunk["choices"][number]> = {
    push,
    usage,
    chunk: (choices, usage) => ChatReply.chunk(head, choices, usage),
    collect: (choices, usage) => ChatReply.collect(head, choices, usage)
  }
  const includeUsage = request.stream_options?.include_usage === true
  return request.stream === true
    ? Responses.streaming(events, writer, { includeUsage })
    : yield* Responses.whole(events, writer)
})

const complete = Effect.fn("serve.complete")(function*(limits: Limits) {
  const request = yield* Effect.fromResult(decodeCompletion(yield* readBody(limits, "prompt")))
  const client = (yield* ClientOf)(yield* HttpServerRequest.HttpServerRequest)
  const { head, job } = yield* Complete.plan(request, { client, limits, served: yield* Served })
  const events = yield* (yield* Answers).begin(job)
  const { push, usage } = CompletionReply.make(head)
  const writer: Responses.Writer<CompletionReply.Completion["choices"][number]> = {
    push,
    usage,
    chunk: (choices, usage) => CompletionReply.chunk(head, choices, usage),
    collect: (choices, usage) => CompletionReply.collect(head, choices, usage)
  }
  const includeUsage = request.stream_options?.include_usage === true
  return request.stream === true
    ? Responses.streaming(events, writer, { includeUsage })
    : yield* Responses.whole(events, writer)
})

const modelOf = ({ context, created, id }: Served["Service"]): typeof Api.Model.Type => ({
  id,
  object: "model",
  created,
  owned_by: "tg",
  context_length: context
})

const embeddings = ApiError.notImplemented(
  "this server makes no embeddings: the models it runs were made to write text",
  { code: "unsupported_endpoint" }
)

const routes = (limits: Limits) =>
  HttpRouter.addAll([
    HttpRouter.route(
      "GET",
      "/v1/models",
      Effect.gen(function*() {
        return HttpServerResponse.jsonUnsafe({ object: "list", data: [modelOf(yield* Served)] })
      })
    ),
    HttpRouter.route(
      "GET",
      "/v1/models/:id",
      Effect.gen(function*() {
        const served = yield* Served
        const { url } = yield* HttpServerRequest.HttpServerRequest
        const other = served.check(nameIn(url))
        return other === undefined ? HttpServerResponse.jsonUnsafe(modelOf(served)) : yield* other
      })
    ),
    HttpRouter.route("POST", "/v1/chat/completions", chat(limits)),
    HttpRouter.route("POST", "/v1/completions", complete(limits)),
    HttpRouter.route("POST", "/v1/embeddings", embeddings),
    HttpRouter.route(
      "GET",
      "/health",
      Effect.gen(function*() {
        const { id } = yield* Served
        const counts = yield* (yield* FairQueue).counts
        return HttpServerResponse.jsonUnsafe({ status: "ok", model: id, ...counts })
      })
    ),
    HttpRouter.route(
      "GET",
      "/metrics",
      Effect.gen(function*() {
        const { running, waiting } = yield* (yield* FairQueue).counts
        yield* Metric.update(Metrics.running, running)
        yield* Metric.update(Metrics.waiting, waiting)
        return HttpServerResponse.text(yield* PrometheusMetrics.format({ prefix: "tg" }), {
          contentType: "text/plain; version=0.0.4; charset=utf-8"
        })
      })
    ),
    HttpRouter.route("GET", "/openapi.json", Effect.sync(() => HttpServerResponse.jsonUnsafe(Api.document())))
  ])

/** The name in `/v1/models/NAME`; names may have slashes. */
const nameIn = (url: string): string => {
  const name = url.slice("/v1/models/".length).split("?", 1)[0]!
  try {
    return decodeURIComponent(name)
  } catch {
    return name
  }
}

/** Answers what no route does, and what a route fails with, in OpenAI's form. */
const answered = <E, R>(app: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
  Effect.catchCause(app, (cause) =>
    Effect.gen(function*() {
      if (Cause.hasInterruptsOnly(cause)) return yield* Effect.interrupt
      const { method, url } = yield* HttpServerRequest.HttpServerRequest
      const error = Cause.squash(cause)
      if (HttpServerError.isHttpServerError(error) && error.reason._tag === "RouteNotFound") {
        return notFound(method, url.split("?", 1)[0]!).response
      }
      const failure = Responses.failure(cause)
      if (failure.code === "internal_error") yield* Effect.logError("a request failed", cause)
      return failure.response
    }))

const notFound = (method: string, path: string): ApiError.ApiError => {
  const allow = paths[path]
  return allow === undefined
    ? ApiError.notFound(`there is no ${method} ${path.slice(0, 200)}; /openapi.json says what there is`, {
      code: "unknown_url"
    })
    : new ApiError.ApiError({
      status: 405,
      type: "invalid_request_error",
      message: `${path} takes ${allow}, not ${method}`,
      param: null,
      code: "method_not_allowed",
      allow
    })
}

const counting = <E, R>(app: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
  Effect.tap(app, ({ status }) =>
    Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ url }) => {
      const path = url.split("?", 1)[0]!
      const attributes = { path: path in paths ? path : "other", status: String(status) }
      return Metric.update(Metric.withAttributes(Metrics.requests, attributes), 1)
    }))

/** No more turns than conversations that the device has room for. */
const queueOf = (limits: Limits) =>
  Layer.unwrap(Effect.gen(function*() {
    const { most } = yield* (yield* Conversations).status
    return FairQueue.layer({ queue: limits.queue, parallel: Math.min(limits.parallel, most) })
  }))

/** What the routes need, all but the conversations. */
export const services = ({ limits, names }: Options) =>
  Answers.layer(limits).pipe(
    Layer.provideMerge(queueOf(limits)),
    Layer.merge(Bodies.layer(limits)),
    Layer.merge(Served.layer(names))
  )

/**
 * Serves until its Scope is closed. `more` are further routes, such as a page. Provide an `HttpServer` to listen, and
 * the conversations to answer with.
 */
export const layer = <E = never, R = never>(
  options: Options,
  more: Layer.Layer<never, E, R | HttpRouter.HttpRouter> = Layer.empty
) =>
  Layer.unwrap(Effect.gen(function*() {
    const guard = yield* Guard.make(options.access)
    const app = yield* HttpRouter.toHttpEffect(Layer.merge(routes(options.limits), more))
    return HttpServer.serve(counting(guard(answered(app))))
  })).pipe(Layer.provide(Digest.layerWebCrypto))
