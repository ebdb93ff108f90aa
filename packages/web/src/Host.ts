/** The worker's side: the engine, and what the page may ask of it. */
import { ModelFile } from "@tg/engine"
import { type Engine, fromModel, type Token } from "@tg/engine/Engine"
import * as Sampler from "@tg/engine/Sampler"
import { GgufReader } from "@tg/gguf/GgufReader"
import { known } from "@tg/models/Models"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Context, Effect, Layer, Queue, Random, Scope, Semaphore, Stream } from "effect"
import * as Devices from "./Devices.ts"
import { fromTagged, ModelError } from "./ModelError.ts"
import { type GenerateOptions, type Loaded, type OpenOptions, type Progress, Requests } from "./Protocol.ts"
import * as ProgramStore from "./ProgramStore.ts"
import * as Source from "./Source.ts"

declare global {
  /** What `bundle.ts` calls the code that it has bundled; elsewhere it is not defined. */
  var TG_BUILD: string | undefined
}

/** Programs are kept by a build that has a name. */
const keeping = typeof TG_BUILD === "string" ? ProgramStore.layer(TG_BUILD) : Layer.empty

/** A model on its device. */
interface Running {
  readonly loaded: typeof Loaded.Type
  readonly engine: Engine["Service"]
  readonly codec: Codec
}

/** How far loading is. */
type Event = typeof Progress.Type | typeof Loaded.Type

/** Loads a model; it stays on its device until the scope closes. */
const load = Effect.fn("Host.load")(
  function*(
    file: Parameters<typeof Source.open>[0],
    options: typeof OpenOptions.Type,
    say: (event: Event) => Effect.Effect<unknown>
  ) {
    const source = yield* Source.open(file)
    const { read } = yield* GgufReader
    const model = yield* ModelFile.ofGguf(yield* read(source), known)
    const services = yield* Layer.build(
      Devices.layer(options.device ?? "auto", options.threads).pipe(Layer.provide(keeping))
    )
    const engine = yield* fromModel(source, model, {
      context: options.context,
      prepare: ["last", Sampler.greedy],
      onProgress: ({ loadedBytes, totalBytes }) => Effect.asVoid(say({ _tag: "Progress", loadedBytes, totalBytes }))
    }).pipe(Effect.provide(services))
    const loaded: typeof Loaded.Type = {
      _tag: "Loaded",
      name: model.config.name,
      context: engine.context,
      device: Context.get(services, Devices.Chosen)
    }
    const running: Running = { loaded, engine, codec: model.codec }
    return running
  }
)

/** Tokens one by one, so that a page that wants no more is heard between two of them. */
const texts = <E extends { readonly _tag: string; readonly message: string }>(tokens: Stream.Stream<Token, E>) =>
  tokens.pipe(
    Stream.mapEffect((token) => Effect.as(Effect.yieldNow, token.text)),
    Stream.rechunk(1),
    Stream.mapError(fromTagged)
  )

const generate = Effect.fn("Host.generate")(function*(
  { engine }: Running,
  tokens: ReadonlyArray<number>,
  { maxTokens, minP, seed, stop, temperature, topK, topP }: typeof GenerateOptions.Type
) {
  const { greedy } = Sampler
  const sampling: Sampler.Settings = {
    temperature: temperature ?? greedy.temperature,
    topK: topK ?? greedy.topK,
    topP: topP ?? greedy.topP,
    minP: minP ?? greedy.minP,
    seed: seed ?? (yield* Random.nextIntBetween(0, 2 ** 32))
  }
  return texts(engine.generate({ tokens, maxTokens, stop, sampling }))
})

const notOpen = new ModelError({
  reason: "NotOpen",
  message: "the worker has no model; it was restarted, so open the model again"
})

const alreadyOpen = new ModelError({
  reason: "InvalidRequest",
  message: "the worker has a model; start another worker"
})

/** Answers the page's requests. The model goes when the layer's scope closes. */
export const layer = Requests.toLayer(Effect.gen(function*() {
  const scope = yield* Effect.scope
  let opened: Running | undefined
  const turns = yield* Semaphore.make(1)
  /** A model has one conversation in its cache: the next answer waits until this one has ended. */
  const turn = Effect.acquireRelease(turns.take(1), () => turns.release(1), { interruptible: true })
  const running = Effect.suspend(() => opened === undefined ? Effect.fail(notOpen) : Effect.succeed(opened))
  return {
    Open: ({ options, source }) =>
      Stream.callback<Event, ModelError>((queue) =>
        Effect.gen(function*() {
          if (opened !== undefined) return yield* alreadyOpen
          const say = (event: Event) => Queue.offer(queue, event)
          opened = yield* load(source, options, say).pipe(Scope.provide(scope), Effect.mapError(fromTagged))
          yield* say(opened.loaded)
          yield* Queue.end(queue)
        })
      ),
    Chat: ({ messages, options: { variables, ...options } }) =>
      Stream.unwrap(Effect.gen(function*() {
        const model = yield* running
        const asked = { messages, variables: variables ?? {} }
        const segments = yield* Effect.fromResult(model.engine.model.template).pipe(
          Effect.flatMap((template) => Effect.fromResult(template.render(asked, new Date()))),
          Effect.mapBoth({ onSuccess: (prompt) => prompt.segments, onFailure: fromTagged })
        )
        yield* turn
        return yield* generate(model, model.codec.encodeSegments(segments), options)
      })),
    Generate: ({ options, prompt }) =>
      Stream.unwrap(Effect.gen(function*() {
        const model = yield* running
        yield* turn
        return yield* generate(model, model.codec.encode(prompt, { addSpecial: true }), options)
      })),
    Cached: () => Effect.flatMap(running, ({ engine }) => Effect.map(engine.cached, (tokens) => tokens.length))
  }
}))
