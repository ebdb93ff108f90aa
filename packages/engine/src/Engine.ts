/** A loaded model that generates text: the service that commands and servers use. */
import { ByteSource } from "@tg/gguf/ByteSource"
import type { Jit } from "@tg/jit/Jit"
import type { Families } from "@tg/model-parts/Family"
import type { Device } from "@tg/runtime/Device"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Context, Effect, Layer, type Scope, Stream } from "effect"
import { generate } from "./Generate.ts"
import * as Loading from "./Loading.ts"
import type { LoadError, LoadTimes, Options } from "./Loading.ts"
import * as ModelFile from "./ModelFile.ts"
import * as Rings from "./Rings.ts"
import * as Recovering from "./Recovering.ts"
import type { EngineError, Request, Token } from "./Request.ts"
import type * as Session from "./Session.ts"
import type * as StepProgram from "./StepProgram.ts"

export type { Constraint } from "./Constraint.ts"
export { InvalidRequest, type Likelihood, NothingAllowed, type Penalties } from "./Request.ts"
export type { EngineError, Request, Token } from "./Request.ts"

export type { LoadError, LoadTimes, Options, Program } from "./Loading.ts"

/** A model on a device, with one conversation in its cache. */
export class Engine extends Context.Service<Engine, {
  readonly model: ModelFile.ModelFile
  readonly loadTimes: LoadTimes
  /** The steps behind `generate` and `logits`, to measure them one by one. It is the same conversation. */
  readonly session: Session.Session
  /** Tokens that a conversation may have. */
  readonly context: number
  readonly tokenizer: Effect.Effect<Codec>
  /**
   * Continues the prompt. What the cache shares with the prompt's beginning is not computed again. Ends with `stop: "context"`
   * when another token would not fit; a prompt that does not fit is `ContextFull`.
   */
  readonly generate: (request: Request) => Stream.Stream<Token, EngineError>
  /** The logits after each token, `[n, vocabulary]` at a time. Starts with an empty cache. */
  readonly logits: (tokens: ReadonlyArray<number>) => Stream.Stream<Float32Array, EngineError>
  /** Compiles what `generate` (last) or `logits` (all) run, before their first step needs it. */
  readonly prepare: (rows: StepProgram.Rows) => Effect.Effect<void, EngineError>
  /** The tokens in the cache. */
  readonly cached: Effect.Effect<ReadonlyArray<number>>
  /** Empties the cache. */
  readonly reset: Effect.Effect<void>
}>()("@tg/engine/Engine") {
  /** Loads the model of the byte source. */
  static readonly layer = (
    options: Options = {}
  ): Layer.Layer<Engine, LoadError, ByteSource | Device | Families | Jit> =>
    Layer.effect(
      Engine,
      Effect.gen(function*() {
        const source = yield* ByteSource
        const model = yield* ModelFile.open(source)
        return yield* fromModel(source, model, options)
      })
    )
}

/** Loads the weights of a model whose header has been read. */
export const fromModel: (
  source: ByteSource["Service"],
  model: ModelFile.ModelFile,
  options?: Options
) => Effect.Effect<Engine["Service"], LoadError, Device | Jit | Scope.Scope> = Effect.fn("Engine.load")(
  function*(source, model, options = {}) {
    const home = yield* Loading.home(source, model, options)
    const speculation = yield* Loading.speculation
    const session = yield* Recovering.session(home, ({ first }) => Effect.succeed(first))
    return Engine.of({
      model,
      loadTimes: home.current().value.times,
      session,
      context: session.context,
      tokenizer: Effect.succeed(model.codec),
      generate: (request) => generate(session, { codec: model.codec, request, speculation }),
      logits: (tokens) => logits(session, tokens),
      prepare: (rows) => Effect.asVoid(session.prepare(rows)),
      cached: Effect.sync(session.tokens),
      reset: session.reset
    })
  }
)

const logits = (
  session: Session.Session,
  tokens: ReadonlyArray<number>
): Stream.Stream<Float32Array, EngineError> => {
  const check = tokens.length > session.context
    // refuse before the first row, not after the context's last
    ? Effect.asVoid(session.advance(tokens))
    : session.reset
  const rows = Stream.fromIterable(Rings.pieces(0, tokens.length, session)).pipe(
    Stream.mapEffect(({ length, start }) => session.append(tokens.slice(start, start + length)))
  )
  return Stream.concat(Stream.fromEffectDrain(check), rows)
}
