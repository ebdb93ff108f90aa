/** Several conversations with one loaded model: each request goes on where the one it shares most with has come to. */
import { ByteSource } from "@tg/gguf/ByteSource"
import type { Jit } from "@tg/jit/Jit"
import type { Device } from "@tg/runtime/Device"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import type { TokenizerError } from "@tg/tokenizer/TokenizerError"
import { Context, Effect, Layer, type Scope, Semaphore, type Stream } from "effect"
import * as Engine from "./Engine.ts"
import * as ModelFile from "./ModelFile.ts"
import { type EngineError, type Request, type Token, validate } from "./Request.ts"
import { commonPrefix } from "./Session.ts"

/** How to load a model for several conversations. */
export interface Options extends Engine.Options {
  /** Conversations that are kept, and can be answered at the same time. */
  readonly conversations?: number | undefined
}

/** An answer on its way. */
export interface Generation {
  readonly promptTokens: number
  /** Tokens of the prompt that were computed before, and are not computed again. */
  readonly cachedTokens: number
  /** To be run once, while the Scope is open. */
  readonly tokens: Stream.Stream<Token, EngineError>
}

/** A model that keeps several conversations. */
export class Conversations extends Context.Service<Conversations, {
  readonly model: ModelFile.ModelFile
  /** Tokens that a conversation may have. */
  readonly context: number
  readonly tokenizer: Effect.Effect<Codec, TokenizerError>
  /**
   * Takes a conversation for the request, waiting for one if all are busy, until the Scope is closed; that ends the generation
   * within one token.
   */
  readonly generate: (request: Request) => Effect.Effect<Generation, EngineError, Scope.Scope>
}>()("@tg/engine/Conversations") {
  /** Loads the model of the byte source. */
  static readonly layer = (
    options: Options = {}
  ): Layer.Layer<Conversations, Engine.LoadError, ByteSource | Device | Jit> =>
    Layer.effect(
      Conversations,
      Effect.gen(function*() {
        const source = yield* ByteSource
        return yield* fromModel(source, yield* ModelFile.open(source), options)
      })
    )
}

/** Loads the weights of a model whose header has been read. */
export const fromModel = Effect.fn("Conversations.load")(function*(
  source: ByteSource["Service"],
  model: ModelFile.ModelFile,
  options: Options = {}
) {
  const engine = yield* Engine.fromModel(source, model, options)
  const turn = yield* Semaphore.make(1)
  return Conversations.of({
    model,
    context: engine.context,
    tokenizer: engine.tokenizer,
    generate: Effect.fn("Conversations.generate")(function*(request: Request) {
      const invalid = validate(request, model.config.vocabulary)
      if (invalid !== undefined) return yield* invalid
      yield* Effect.acquireRelease(turn.take(1), () => turn.release(1), { interruptible: true })
      const promptTokens = request.tokens.length
      const cachedTokens = Math.min(commonPrefix(yield* engine.cached, request.tokens), promptTokens - 1)
      return { promptTokens, cachedTokens, tokens: engine.generate(request) }
    })
  })
})
