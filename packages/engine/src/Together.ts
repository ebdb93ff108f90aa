/** `Conversations` whose answers are computed in the same steps. */
import { ByteSource } from "@tg/gguf/ByteSource"
import type { Jit } from "@tg/jit/Jit"
import type { Families } from "@tg/model-parts/Family"
import type { Device } from "@tg/runtime/Device"
import { Effect, Layer, type Scope, Semaphore } from "effect"
import { Conversations, type Generation } from "./Conversations.ts"
import { generate } from "./Generate.ts"
import * as Loading from "./Loading.ts"
import * as ModelFile from "./ModelFile.ts"
import * as Parallel from "./Parallel.ts"
import { type EngineError, type Request, validate } from "./Request.ts"
import * as Tokens from "./Tokens.ts"

/** Loads the weights of a model whose header has been read. */
export const fromModel: (
  source: ByteSource["Service"],
  model: ModelFile.ModelFile,
  options: Parallel.Options
) => Effect.Effect<Conversations["Service"], Loading.LoadError, Device | Jit | Scope.Scope> = Effect.fn(
  "Together.load"
)(
  function*(source, model, options) {
    const { context, join, loadTimes } = yield* Parallel.open(source, model, options)
    const speculation = yield* Loading.speculation
    const places = yield* Semaphore.make(options.parallel)
    let busy = 0
    const place = Effect.acquireRelease(
      Effect.tap(places.take(1), () => Effect.sync(() => busy++)),
      () => Effect.andThen(Effect.sync(() => busy--), places.release(1)),
      { interruptible: true }
    )
    return Conversations.of({
      model,
      loadTimes,
      context,
      tokenizer: Effect.succeed(model.codec),
      generate: Effect.fn("Together.generate")(
        function*(request: Request): Effect.fn.Return<Generation, EngineError, Scope.Scope> {
          const { tokens } = request
          const invalid = validate(request, model.config.vocabulary) ?? Tokens.invalid(tokens, model.config, context)
          if (invalid !== undefined) return yield* invalid
          yield* place
          const steps = yield* join
          return {
            promptTokens: tokens.length,
            cachedTokens: steps.reusable(tokens),
            tokens: generate(steps, { codec: model.codec, request, speculation })
          }
        }
      ),
      status: Effect.sync(() => ({ kept: busy, busy, most: options.parallel }))
    })
  }
)

/** Loads the model of the byte source. */
export const layer = (
  options: Parallel.Options
): Layer.Layer<Conversations, Loading.LoadError, ByteSource | Device | Families | Jit> =>
  Layer.effect(
    Conversations,
    Effect.gen(function*() {
      const source = yield* ByteSource
      return yield* fromModel(source, yield* ModelFile.open(source), options)
    })
  )
