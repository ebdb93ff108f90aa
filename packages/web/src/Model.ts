/** A model in a worker of this page, to chat with. */
import type { Message } from "@tg/tokenizer/ChatTemplate"
import { Cause, Effect, Exit, Schema, Scope, Stream } from "effect"
import { type Client, connect, startWorker } from "./Connection.ts"
import { ModelError } from "./ModelError.ts"
import * as scheduling from "./internal/scheduling.ts"
import * as Protocol from "./Protocol.ts"

/** A model that the browser keeps, by the name that it was kept under. */
export interface KeptName {
  readonly kept: string
}

/** Bytes that the page gives away: it has them no more. */
export interface Given {
  readonly given: ArrayBuffer
  readonly name: string
}

/**
 * Where a model comes from: a file that was picked, an address (of this page, if relative), a name of the hub
 * (`hf:owner/repo:Q4_K_M`), the bytes themselves, or what the browser keeps.
 */
export type Source = Blob | URL | string | Uint8Array<ArrayBuffer> | ArrayBuffer | Given | KeptName

/** Where a model runs. */
export interface Options extends Schema.Schema.Type<typeof Protocol.OpenOptions> {
  /**
   * Starts the worker, where its script is not `worker.js` beside this one. One that was started before, and whose name is `tg auto`,
   * `tg webgpu` or `tg wasm`, starts that device before it is asked to.
   */
  readonly worker?: (() => Worker) | undefined
  /** Called while weights are on their way to the device. */
  readonly onProgress?: ((progress: Omit<typeof Protocol.Progress.Type, "_tag">) => void) | undefined
}

/** How to look at a model. */
export interface LookOptions extends Options {
  /** Whether the memory that it will take is to be told, for which its programs are planned (default: yes). */
  readonly memory?: boolean | undefined
}

/** How to go on with a text: the likeliest tokens, unless a temperature is given. */
export type GenerateOptions = typeof Protocol.GenerateOptions.Type
/** How to answer. */
export type ChatOptions = typeof Protocol.ChatOptions.Type
/** What to answer: a question, or a conversation. */
export type Conversation = string | ReadonlyArray<Message>

const sourceOf = (source: Source): Effect.Effect<Protocol.Source, ModelError> => {
  if (source instanceof Blob) {
    return Effect.succeed({ _tag: "Blob", name: source instanceof File ? source.name : "the blob", blob: source })
  }
  if (source instanceof ArrayBuffer || source instanceof Uint8Array) {
    return Effect.succeed({ _tag: "Blob", name: "the bytes", blob: new Blob([source]) })
  }
  if (typeof source === "object" && "given" in source) {
    return Effect.succeed({ _tag: "Bytes", name: source.name, bytes: source.given })
  }
  if (typeof source === "object" && "kept" in source) return Effect.succeed({ _tag: "Kept", name: source.kept })
  if (typeof source === "string" && /^hf:/i.test(source)) return Effect.succeed({ _tag: "Name", name: source })
  const url = URL.parse(source, location.href)
  if (url !== null && /^(https?|blob|data):$/.test(url.protocol)) {
    return Effect.succeed({ _tag: "Address", url: url.href })
  }
  return Effect.fail(
    new ModelError({
      reason: "InvalidRequest",
      message: `${String(source)} is no address of a model; give a File, the bytes, or an address with http or https`
    })
  )
}

/** Checks what a program without types may have got wrong, before it is sent. */
const checked = <S extends Schema.Codec<unknown, unknown>>(schema: S, what: string, value: unknown) =>
  Schema.decodeUnknownEffect(Schema.toType(schema), { onExcessProperty: "error" })(value).pipe(
    Effect.mapError((error) => new ModelError({ reason: "InvalidRequest", message: `${what}: ${error.message}` }))
  )

/** A request that nobody but the end of the model interrupts: the page's own interruption is seen by no one. */
const orClosed = (cause: Cause.Cause<ModelError>): Cause.Cause<ModelError> =>
  Cause.hasInterruptsOnly(cause)
    ? Cause.fail(new ModelError({ reason: "Closed", message: "the model was closed; open it again" }))
    : cause

/** An answer as the page sees it. */
const answer = <A>(parts: Stream.Stream<A, ModelError>): Stream.Stream<A, ModelError> =>
  parts.pipe(
    Stream.catchCause((cause) => Stream.failCause(orClosed(cause)))
  )

/** Without what is not complete yet. */
const withText = <E>(texts: Stream.Stream<string, E>): Stream.Stream<string, E> =>
  Stream.filter(texts, (text) => text !== "")

const endedEarly = new ModelError({
  reason: "WorkerFailed",
  message: "the worker ended before the model was loaded; open it again"
})

const messagesOf = (conversation: Conversation): unknown =>
  typeof conversation === "string" ? [{ role: "user", content: conversation }] : conversation

/** Loads a model into a worker that has none. Without a file, what the worker has looked at. */
const openIn = Effect.fnUntraced(function*(
  client: Client,
  source: Protocol.Source | undefined,
  { onProgress = () => {}, options }: {
    readonly onProgress?: Options["onProgress"]
    readonly options: typeof Protocol.OpenOptions.Type
  }
) {
  const { context, device, name } = yield* client.Open({ source, options }).pipe(
    Stream.runFold((): typeof Protocol.Loaded.Type | undefined => undefined, (last, event) => {
      if (event._tag === "Loaded") return event
      onProgress({ loadedBytes: event.loadedBytes, totalBytes: event.totalBytes })
      return last
    }),
    Effect.flatMap((loaded) => loaded === undefined ? Effect.fail(endedEarly) : Effect.succeed(loaded))
  )
  const conversing = Effect.fnUntraced(function*(conversation: Conversation, options: ChatOptions) {
    const messages = yield* checked(Protocol.Messages, "messages", messagesOf(conversation))
    return { messages, options: yield* checked(Protocol.ChatOptions, "options", options) }
  })
  return {
    name,
    context,
    device,
    /** The model's reply, as it is computed. What two conversations begin with in common is computed once. */
    chat: (conversation: Conversation, options: ChatOptions = {}): Stream.Stream<string, ModelError> =>
      Stream.unwrap(Effect.map(conversing(conversation, options), client.Chat)).pipe(answer, withText),
    /** The same in parts: what the model thinks, what it says, and at the end what it took. */
    reply: (conversation: Conversation, options: ChatOptions = {}): Stream.Stream<Protocol.Piece, ModelError> =>
      Stream.unwrap(Effect.map(conversing(conversation, options), client.Reply)).pipe(answer),
    /** What the model goes on with behind a text, as it is computed. */
    generate: (prompt: string, options: GenerateOptions = {}): Stream.Stream<string, ModelError> =>
      Stream.unwrap(Effect.gen(function*() {
        const text = yield* checked(Schema.String, "the prompt", prompt)
        const how = yield* checked(Protocol.GenerateOptions, "options", options)
        return client.Generate({ prompt: text, options: how })
      })).pipe(answer, withText),
    /** Tokens whose state the model keeps: of the last prompt, and of what was computed behind it. */
    cached: client.Cached().pipe(
      Effect.catchCause((cause) => Effect.failCause(orClosed(cause)))
    ),
    /** How fast it is here, and which kernels its time goes to. Its cache is empty afterwards. */
    gauge: client.Gauge().pipe(
      Effect.catchCause((cause) => Effect.failCause(orClosed(cause)))
    )
  }
})

/** Loads a model into a worker of its own; both go when the scope closes. */
export const load = Effect.fn("Model.load")(
  function*(source: Source, { onProgress, worker = startWorker, ...options }: Options = {}) {
    const file = yield* sourceOf(source)
    const asked = yield* checked(Protocol.OpenOptions, "options", options)
    const client = yield* connect(worker)
    return yield* openIn(client, file, { onProgress, options: asked })
  }
)

/** Reads the header of a model in a worker of its own: what it is, what it will take, and how to load it then. */
export const prepare = Effect.fn("Model.prepare")(
  function*(source: Source, { memory = true, onProgress, worker = startWorker, ...options }: LookOptions = {}) {
    const file = yield* sourceOf(source)
    const asked = yield* checked(Protocol.OpenOptions, "options", options)
    const client = yield* connect(worker)
    const facts = yield* client.Look({ source: file, options: asked, memory })
    return { facts, load: openIn(client, undefined, { onProgress, options: asked }) }
  }
)

/** A model that is loaded. */
export type Model = Effect.Success<ReturnType<typeof load>>

/** Ends an answer, or the wait for a model. */
export interface Abortable {
  /** When it is aborted, its reason is thrown. */
  readonly signal?: AbortSignal | undefined
}

/** A model for programs without Effect. Failures are thrown: a `ModelError`, or the reason of an aborted signal. */
export interface Opened extends AsyncDisposable {
  /** As its file calls it. */
  readonly name: string
  /** Tokens that a conversation may have. */
  readonly context: number
  readonly device: Protocol.DeviceInfo
  readonly chat: (conversation: Conversation, options?: ChatOptions & Abortable) => AsyncIterable<string>
  /** The same in parts: what the model thinks, what it says, and at the end what it took. */
  readonly reply: (conversation: Conversation, options?: ChatOptions & Abortable) => AsyncIterable<Protocol.Piece>
  readonly generate: (prompt: string, options?: GenerateOptions & Abortable) => AsyncIterable<string>
  /** Tokens whose state the model keeps: of the last prompt, and of what was computed behind it. */
  readonly cached: () => Promise<number>
  /** How fast it is here, and which kernels its time goes to. Its cache is empty afterwards. */
  readonly gauge: () => Promise<Protocol.Gauged>
  /** Gives back the worker, the device and its memory, as the end of `await using` does. */
  readonly close: () => Promise<void>
}

/** Fails with the signal's reason when it is aborted. */
const aborted = (signal: AbortSignal): Effect.Effect<never, unknown> =>
  Effect.callback((resume) => {
    const fail = () => resume(Effect.fail(signal.reason))
    if (signal.aborted) return fail()
    signal.addEventListener("abort", fail, { once: true })
    return Effect.sync(() => signal.removeEventListener("abort", fail))
  })

const iterable = <A>(stream: Stream.Stream<A, ModelError>, signal: AbortSignal | undefined): AsyncIterable<A> =>
  Stream.toAsyncIterableWith(
    signal === undefined ? stream : Stream.interruptWhen(stream, aborted(signal)),
    scheduling.context()
  )

const run = <A, E>(effect: Effect.Effect<A, E>): Promise<A> => Effect.runPromiseWith(scheduling.context())(effect)

/** Runs in a scope that is closed when it fails or is aborted. */
const within = <A, E>(
  scope: Scope.Closeable,
  effect: Effect.Effect<A, E, Scope.Scope>,
  signal: AbortSignal | undefined
): Promise<A> => {
  const running = effect.pipe(
    Scope.provide(scope),
    Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause)))
  )
  return run(signal === undefined ? running : Effect.raceFirst(running, aborted(signal)))
}

const openedOf = ({ cached, chat, gauge, generate, reply, ...loaded }: Model, close: () => Promise<void>): Opened => ({
  ...loaded,
  chat: (conversation, { signal, ...given } = {}) => iterable(chat(conversation, given), signal),
  reply: (conversation, { signal, ...given } = {}) => iterable(reply(conversation, given), signal),
  generate: (prompt, { signal, ...given } = {}) => iterable(generate(prompt, given), signal),
  cached: () => run(cached),
  gauge: () => run(gauge),
  close,
  [Symbol.asyncDispose]: close
})

/** Loads a model for a program without Effect. */
export const open = async (source: Source, { signal, ...options }: Options & Abortable = {}): Promise<Opened> => {
  const scope = Scope.makeUnsafe()
  const close = () => run(Scope.close(scope, Exit.void))
  return openedOf(await within(scope, load(source, options), signal), close)
}

/** A model whose header was read. */
export interface Seen extends AsyncDisposable {
  readonly facts: Protocol.Facts
  /** Loads it. To be called once. */
  readonly load: (options?: Abortable) => Promise<Opened>
  /** Gives back the worker, and the model if it was loaded. */
  readonly close: () => Promise<void>
}

/** Reads the header of a model for a program without Effect. */
export const look = async (source: Source, { signal, ...options }: LookOptions & Abortable = {}): Promise<Seen> => {
  const scope = Scope.makeUnsafe()
  const close = () => run(Scope.close(scope, Exit.void))
  const { facts, load } = await within(scope, prepare(source, options), signal)
  return {
    facts,
    load: async ({ signal } = {}) => openedOf(await within(scope, load, signal), close),
    close,
    [Symbol.asyncDispose]: close
  }
}
