/** A model on a device of this machine, to chat with. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { ModelFile } from "@tg/engine"
import { Engine, fromModel } from "@tg/engine/Engine"
import * as Drafter from "@tg/engine/Drafter"
import * as Sampler from "@tg/engine/Sampler"
import * as GgufFile from "@tg/gguf/GgufFile"
import type { ModelFamily } from "@tg/model-parts/Family"
import { known } from "@tg/models/Models"
import type { Message } from "@tg/tokenizer/ChatTemplate"
import { Effect, Exit, Layer, Random, Scope, Stream } from "effect"
import * as Devices from "./Devices.ts"

/** Where a model runs. */
export interface Options {
  /** `auto` by default: a hardware GPU if there is one, else WebAssembly. */
  readonly device?: Devices.Choice | undefined
  /** Of the wasm device; one for each core by default. */
  readonly threads?: number | undefined
  /** Tokens the context has memory for; by default it grows, up to what the model allows. */
  readonly context?: number | undefined
  /** Whether tokens are guessed and several verified in a step, which changes no text; `off` by default. */
  readonly draft?: Drafter.Name | undefined
  /** Families of models that run beside those that tg knows. */
  readonly families?: ReadonlyArray<ModelFamily> | undefined
}

/** How to answer: the likeliest tokens, unless a temperature is given; then without a seed each answer is another one. */
export interface ChatOptions extends Partial<Sampler.Settings> {
  /** End after this many tokens; otherwise where the model or the context ends. */
  readonly maxTokens?: number | undefined
  /** Variables of the chat template, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined
}

/** What to answer: a question, or a conversation. */
export type Conversation = string | ReadonlyArray<Message>

const messagesOf = (conversation: Conversation): ReadonlyArray<Message> =>
  typeof conversation === "string" ? [{ role: "user", content: conversation }] : conversation

/** The engine of a file, over a device. */
const engineOf = (path: string, { context, device = "auto", draft, families = [], threads }: Options) =>
  Layer.unwrap(Effect.gen(function*() {
    const { gguf, source } = yield* GgufFile.open(path)
    const file = yield* ModelFile.ofGguf(gguf, { families: [...known.families, ...families] })
    const drafter = draft === undefined ? yield* Drafter.Drafter : Drafter.named(draft)
    const engine = fromModel(source, file, { context, prepare: ["last", Sampler.greedy] }).pipe(
      Effect.provideService(Drafter.Drafter, drafter)
    )
    return Layer.effect(Engine, engine).pipe(Layer.provideMerge(Devices.layer(device, { threads })))
  }))

/** Loads a model; it stays on its device until the scope closes. */
export const load = Effect.fn("Model.load")(function*(path: string, options: Options = {}) {
  const context = yield* Layer.build(engineOf(path, options)).pipe(Effect.provide(NodeServices.layer))
  const [engine, chosen] = yield* Effect.all([Engine, Devices.Chosen]).pipe(Effect.provide(context))
  const { codec, config } = engine.model
  const template = yield* Effect.fromResult(engine.model.template)
  return {
    /** As its file calls it. */
    name: config.name,
    /** The device in use, in words. */
    device: chosen.name,
    /** Everything else that can be asked of it. */
    engine,
    /** The model's reply, as it is computed. What two conversations begin with in common is computed once. */
    chat: (conversation: Conversation, { maxTokens, variables, ...sampling }: ChatOptions = {}) =>
      Stream.unwrap(Effect.gen(function*() {
        const asked = { messages: messagesOf(conversation), variables: variables ?? {} }
        const { segments } = yield* Effect.fromResult(template.render(asked, new Date()))
        const seed = yield* Random.nextIntBetween(0, 2 ** 32)
        const settings = { ...Sampler.greedy, seed, ...sampling }
        return engine.generate({ tokens: codec.encodeSegments(segments), maxTokens, sampling: settings })
      })).pipe(Stream.map((token) => token.text))
  }
})

/** A model that is loaded. */
export type Model = Effect.Success<ReturnType<typeof load>>

/** A model for programs without Effect. Failures are thrown as they are: tagged errors with a message. */
export interface Opened extends AsyncDisposable {
  readonly name: string
  readonly device: string
  readonly chat: (conversation: Conversation, options?: ChatOptions) => AsyncIterable<string>
  /** Gives back the device and its memory, as the end of `await using` does. */
  readonly close: () => Promise<void>
}

/** Loads a model for a program without Effect. */
export const open = async (path: string, options: Options = {}): Promise<Opened> => {
  const scope = Scope.makeUnsafe()
  const close = () => Effect.runPromise(Scope.close(scope, Exit.void))
  const loading = load(path, options).pipe(
    Scope.provide(scope),
    Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause)))
  )
  const { chat, device, name } = await Effect.runPromise(loading)
  return {
    name,
    device,
    chat: (conversation, given) => Stream.toAsyncIterable(chat(conversation, given)),
    close,
    [Symbol.asyncDispose]: close
  }
}
