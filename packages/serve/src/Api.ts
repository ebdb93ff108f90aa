/** The routes as a document: what `/openapi.json` answers. */
import { Schema } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import * as ApiError from "./ApiError.ts"
import { ChatChunk, ChatCompletion } from "./ChatReply.ts"
import { ChatRequest } from "./ChatRequest.ts"
import { Completion } from "./CompletionReply.ts"
import { CompletionRequest } from "./CompletionRequest.ts"

/** A model. */
export const Model = Schema.Struct({
  id: Schema.String,
  object: Schema.Literal("model"),
  created: Schema.Int,
  owned_by: Schema.String,
  /** Tokens that a conversation may have. */
  context_length: Schema.Int
}).annotate({ identifier: "Model" })

/** All models: one. */
export const Models = Schema.Struct({ object: Schema.Literal("list"), data: Schema.Array(Model) })

/** How the server is. */
export const Health = Schema.Struct({
  status: Schema.Literal("ok"),
  model: Schema.String,
  running: Schema.Int,
  waiting: Schema.Int
}).annotate({ identifier: "Health" })

const failing = (...codes: ReadonlyArray<number>) => codes.map((code) => ApiError.Body.pipe(HttpApiSchema.status(code)))

const text = (contentType: string) => Schema.String.pipe(HttpApiSchema.asText({ contentType }))

const group = HttpApiGroup.make("openai").add(
  HttpApiEndpoint.get("listModels", "/v1/models", { success: Models, error: failing(401) }),
  HttpApiEndpoint.get("getModel", "/v1/models/:id", {
    params: { id: Schema.String },
    success: Model,
    error: failing(401, 404)
  }),
  HttpApiEndpoint.post("createChatCompletion", "/v1/chat/completions", {
    payload: ChatRequest,
    success: [ChatCompletion, HttpApiSchema.StreamSse({ data: ChatChunk })],
    error: failing(400, 401, 404, 408, 413, 429, 500, 503)
  }),
  HttpApiEndpoint.post("createCompletion", "/v1/completions", {
    payload: CompletionRequest,
    success: [Completion, HttpApiSchema.StreamSse({ data: Completion })],
    error: failing(400, 401, 404, 408, 413, 429, 500, 503)
  }),
  HttpApiEndpoint.post("createEmbedding", "/v1/embeddings", { error: failing(501) })
)

const server = HttpApiGroup.make("server").add(
  HttpApiEndpoint.get("health", "/health", { success: Health }),
  HttpApiEndpoint.get("metrics", "/metrics", { success: text("text/plain"), error: failing(401) })
)

const Api = HttpApi.make("tg").add(group).add(server).annotateMerge(OpenApi.annotations({
  title: "tg",
  description: "OpenAI's API over a model on this machine"
}))

/** The OpenAPI document of the server. */
export const document = (): unknown => OpenApi.fromApi(Api)
