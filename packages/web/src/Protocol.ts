/** What the page asks of the worker that has the engine. */
import type { Message } from "@tg/tokenizer/ChatTemplate"
import * as Verdict from "@tg/self-test/Verdict"
import { Schema } from "effect"
import { Rpc, RpcGroup } from "effect/rpc"
import * as Transferable from "effect/workers/Transferable"
import { ModelError } from "./ModelError.ts"

/** What can be asked for. */
export const choices = ["auto", "webgpu", "wasm"] as const

/** Where a model runs. */
export const OpenOptions = Schema.Struct({
  /** `auto` by default: WebGPU on a GPU, else WebAssembly. */
  device: Schema.optional(Schema.Literals(choices)),
  /** Of the wasm device, in a page that is cross-origin isolated; one for each core by default. */
  threads: Schema.optional(Schema.Int.check(Schema.isGreaterThan(0))),
  /** Tokens the context has memory for; by default it grows, up to what the model allows. */
  context: Schema.optional(Schema.Int.check(Schema.isGreaterThan(0)))
})

/** How to go on with a text. */
export const GenerateOptions = Schema.Struct({
  /** End after this many tokens; otherwise where the model or the context ends. */
  maxTokens: Schema.optional(Schema.Finite),
  /** The text ends before the first of these. */
  stop: Schema.optional(Schema.Array(Schema.String)),
  temperature: Schema.optional(Schema.Finite),
  topK: Schema.optional(Schema.Finite),
  topP: Schema.optional(Schema.Finite),
  minP: Schema.optional(Schema.Finite),
  /** Without it, each answer that is drawn is another one. */
  seed: Schema.optional(Schema.Finite)
})

/** Values that structured clone sends as they are; `moved` are no longer the sender's. */
const cloned = <A>(
  expected: string,
  is: (value: unknown) => value is A,
  moved: (value: A) => Array<globalThis.Transferable> = () => []
) => Schema.declare(is, { expected }).pipe(Transferable.schema(moved))

const isMessage = (value: unknown): value is Message =>
  typeof value === "object" && value !== null && "role" in value && typeof value.role === "string"

/** One message of a conversation. */
export const Messages = cloned(
  "an array of one or more messages, such as { role: \"user\", content: \"Hello\" }",
  (value): value is ReadonlyArray<Message> => Array.isArray(value) && value.length > 0 && value.every(isMessage)
)

/** How to answer. */
export const ChatOptions = Schema.Struct({
  ...GenerateOptions.fields,
  /** Variables of the chat template, such as `enable_thinking`. */
  variables: Schema.optional(
    cloned(
      "an object",
      (value): value is Readonly<Record<string, unknown>> => typeof value === "object" && value !== null
    )
  )
})

/** Where a model is: a blob, bytes that are given away, an absolute address, a name of the hub, or a name of what the browser keeps. */
export const Source = Schema.Union([
  Schema.TaggedStruct("Blob", {
    name: Schema.String,
    blob: cloned("a Blob", (value): value is Blob => value instanceof Blob)
  }),
  Schema.TaggedStruct("Bytes", {
    name: Schema.String,
    bytes: cloned("an ArrayBuffer", (value): value is ArrayBuffer => value instanceof ArrayBuffer, (bytes) => [bytes])
  }),
  Schema.TaggedStruct("Address", { url: Schema.String }),
  /** A model of the hub, as `hf:owner/repo:Q4_K_M`. */
  Schema.TaggedStruct("Name", { name: Schema.String }),
  /** A model that the browser keeps. */
  Schema.TaggedStruct("Kept", { name: Schema.String })
])
/** Where a model is. */
export type Source = typeof Source.Type

/** The device in use. */
export const DeviceInfo = Schema.Struct({
  kind: Schema.Literals(["webgpu", "wasm"]),
  /** For people: the adapter, or wasm with its threads. */
  name: Schema.String,
  /** Threads of the CPU that compute; of `webgpu`, none. */
  threads: Schema.Finite,
  /** Why it is this one, in a sentence. */
  why: Schema.String,
  /** The adapter with its driver and browser, or what runs WebAssembly: what a self-test is about. */
  identity: Schema.String
})
/** The device in use. */
export type DeviceInfo = typeof DeviceInfo.Type

/** The memory that a model will take. Sizes in bytes. */
export const Memory = Schema.Struct({
  /** Tokens that it is for. */
  context: Schema.Finite,
  weightBytes: Schema.Finite,
  kvBytes: Schema.Finite,
  /** Everything at the moment when it is most. */
  mostBytes: Schema.Finite,
  /** What the device has, where that is known. */
  deviceBytes: Schema.optional(Schema.Finite)
})
/** The memory that a model will take. Sizes in bytes. */
export type Memory = typeof Memory.Type

/** What a model is and what it will take, as its header alone tells. */
export const Facts = Schema.Struct({
  name: Schema.String,
  architecture: Schema.String,
  fileBytes: Schema.Finite,
  parameters: Schema.Finite,
  /** The type that most of the weights have, such as `Q4_0`. */
  weightType: Schema.String,
  /** Tokens that a conversation may have, by the model. */
  contextLength: Schema.Finite,
  /** Where it was asked for: its programs are planned for that. */
  memory: Schema.optional(Memory),
  /** Whether messages can be turned into a prompt. */
  chats: Schema.Boolean,
  device: DeviceInfo
})
/** What a model is and what it will take, as its header alone tells. */
export type Facts = typeof Facts.Type

/** A part of a reply: what the model thinks, what it says, and at the end what it took. */
export const Piece = Schema.Union([
  Schema.Struct({ type: Schema.Literals(["text", "reasoning"]), text: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("done"),
    /** `length` where it was cut, by `maxTokens` or by the context. */
    ending: Schema.Literals(["end", "length"]),
    promptTokens: Schema.Finite,
    /** Of the prompt, what was known from before. */
    cachedTokens: Schema.Finite,
    answerTokens: Schema.Finite
  })
])
/** A part of a reply: what the model thinks, what it says, and at the end what it took. */
export type Piece = typeof Piece.Type

/** A model that is loaded. */
export const Loaded = Schema.TaggedStruct("Loaded", { name: Schema.String, context: Schema.Finite, device: DeviceInfo })

/** Weights on their way from the file to the device. */
export const Progress = Schema.TaggedStruct("Progress", { loadedBytes: Schema.Finite, totalBytes: Schema.Finite })

/** A model that the browser keeps, or part of one. */
export const Kept = Schema.TaggedStruct("Kept", {
  name: Schema.String,
  doneBytes: Schema.Finite,
  totalBytes: Schema.Finite,
  isComplete: Schema.Boolean
})
/** A model that the browser keeps, or part of one. */
export type Kept = typeof Kept.Type

/** A model on its way into the browser. */
export const Coming = Schema.TaggedStruct("Coming", {
  doneBytes: Schema.Finite,
  totalBytes: Schema.Finite,
  /** Whether another tab fetches it, and this one waits. */
  isWaiting: Schema.Boolean
})

/** A self-test on its way. */
export const Testing = Schema.TaggedStruct("Testing", {
  done: Schema.Finite,
  of: Schema.Finite,
  /** What is done without. */
  avoid: Schema.Array(Schema.Literals(Verdict.avoidances))
})

/** What a self-test found, and whether whoever starts the device later knows of it. */
export const Tested = Schema.TaggedStruct("Tested", { verdict: Verdict.Verdict, isKept: Schema.Boolean })

/** All launches of one kernel in a step that writes a token. */
export const KernelRow = Schema.Struct({
  name: Schema.String,
  /** The parts of the model that launch it. */
  sites: Schema.String,
  calls: Schema.Finite,
  /** Of one call. */
  us: Schema.Finite,
  usPerToken: Schema.Finite,
  /** Read and written by one call, each byte once. */
  bytes: Schema.Finite,
  gbPerSecond: Schema.Finite,
  /** Part of the time of all kernels. */
  share: Schema.Finite,
  roof: Schema.Finite
})

/** How fast a model is on a device. */
export const Gauged = Schema.Struct({
  model: Schema.String,
  device: DeviceInfo,
  /** Tokens behind which it was measured. */
  depth: Schema.Finite,
  /** Of text that is written, one after the other. */
  tokensPerSecond: Schema.Finite,
  launches: Schema.Finite,
  /** How kernels were timed: each alone (`each`), by the device's clock (`clock`), or by what more of them add (`extra`). */
  method: Schema.Literals(["clock", "each", "extra"]),
  stepMicros: Schema.Finite,
  kernels: Schema.Array(KernelRow)
})
/** How fast a model is on a device. */
export type Gauged = typeof Gauged.Type

/** The requests. A worker has one model. */
export const Requests = RpcGroup.make(
  // reads the header and no more
  Rpc.make("Look", {
    payload: { source: Source, options: OpenOptions, memory: Schema.Boolean },
    success: Facts,
    error: ModelError
  }),
  // the last one is `Loaded`; without a source, what was looked at is loaded
  Rpc.make("Open", {
    payload: { source: Schema.optional(Source), options: OpenOptions },
    success: Schema.Union([Progress, Loaded]),
    error: ModelError,
    stream: true
  }),
  Rpc.make("Chat", {
    payload: { messages: Messages, options: ChatOptions },
    success: Schema.String,
    error: ModelError,
    stream: true
  }),
  // the same in parts, the last of which is `done`
  Rpc.make("Reply", {
    payload: { messages: Messages, options: ChatOptions },
    success: Piece,
    error: ModelError,
    stream: true
  }),
  Rpc.make("Generate", {
    payload: { prompt: Schema.String, options: GenerateOptions },
    success: Schema.String,
    error: ModelError,
    stream: true
  }),
  // the last one is `Kept`
  Rpc.make("Keep", {
    payload: { name: Schema.String },
    success: Schema.Union([Coming, Kept]),
    error: ModelError,
    stream: true
  }),
  Rpc.make("Kept", { success: Schema.Array(Kept), error: ModelError }),
  // answers with the bytes that are free again
  Rpc.make("Forget", { payload: { name: Schema.String }, success: Schema.Finite, error: ModelError }),
  // the last one is `Tested`
  Rpc.make("SelfTest", {
    payload: {
      options: OpenOptions,
      vectors: Schema.String,
      families: Schema.optional(Schema.Array(Schema.Literals(Verdict.families)))
    },
    success: Schema.Union([Testing, Tested]),
    error: ModelError,
    stream: true
  }),
  // of the model that is open
  Rpc.make("Gauge", { success: Gauged, error: ModelError }),
  // what the last self-test of a device found, if it is kept
  Rpc.make("Verdict", {
    payload: { options: OpenOptions },
    success: Schema.optional(Verdict.Verdict),
    error: ModelError
  }),
  Rpc.make("Cached", { success: Schema.Finite, error: ModelError })
)
