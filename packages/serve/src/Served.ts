/** The model that a server answers with: what is known of it before the first request. */
import * as Messages from "@tg/dialogue/Messages"
import * as ReplyStyle from "@tg/dialogue/ReplyStyle"
import { Conversations } from "@tg/engine/Conversations"
import type { EngineError } from "@tg/engine/Engine"
import type { Renderer } from "@tg/tokenizer/ChatTemplate"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Clock, Context, Effect, Layer, Result } from "effect"
import * as ApiError from "./ApiError.ts"
import * as Constraints from "./Constraints.ts"
import { short } from "./internal/json.ts"

/** What a client calls the model. */
export interface Names {
  readonly id: string
  /** Further names that requests may use. */
  readonly aliases?: ReadonlyArray<string> | undefined
}

/** How a model chats. */
export interface Dialogue {
  readonly template: Renderer
  readonly style: ReplyStyle.ReplyStyle
  readonly writer: Messages.Writer
}

/** The model of a server. */
export class Served extends Context.Service<Served, {
  readonly id: string
  /** Seconds since 1970 at which it was loaded. */
  readonly created: number
  readonly context: number
  readonly codec: Codec
  /** How it chats; the reason why it cannot, where it has no template. */
  readonly dialogue: Result.Result<Dialogue, ApiError.ApiError>
  readonly constraints: Constraints.Constraints
  /** Bytes of the longest token: a text of more than `context` of them cannot fit. */
  readonly longestToken: number
  /** Refuses the name of another model. */
  readonly check: (model: string | null | undefined) => ApiError.ApiError | undefined
}>()("@tg/serve/Served") {
  /** The model of the conversations. */
  static readonly layer = (names: Names): Layer.Layer<Served, EngineError, Conversations> =>
    Layer.effect(Served, make(names))
}

const make = Effect.fn("Served.make")(function*(names: Names) {
  const { context, model, tokenizer } = yield* Conversations
  const codec = yield* tokenizer
  const dialogue = Result.mapBoth(model.template, {
    onSuccess: (template): Dialogue => {
      const style = ReplyStyle.of(template, codec)
      return { template, style, writer: Messages.make(template, style) }
    },
    onFailure: (error) => ApiError.invalid(error.message, { code: "no_chat_template" })
  })
  const known = new Set([names.id, ...names.aliases ?? []])
  return Served.of({
    id: names.id,
    created: Math.floor((yield* Clock.currentTimeMillis) / 1000),
    context,
    codec,
    dialogue,
    constraints: Constraints.make(codec),
    longestToken: codec.vocabulary.tokens.reduce((most, text) => Math.max(most, text.length), 1),
    check: (asked) =>
      asked === null || asked === undefined || known.has(asked) ? undefined : ApiError.notFound(
        `the model ${short(asked, 100)} is not here; this server has ${[...known].join(", ")}`,
        { param: "model", code: "model_not_found" }
      )
  })
})
