/** What the page asks of the worker that has the engine. */
import type { Message } from "@tg/tokenizer/ChatTemplate"
import * as Verdict from "@tg/self-test/Verdict"
import { Schema } from "effect"
import { choices } from "./Choices.ts"

export { choices } from "./Choices.ts"

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

/** Values that structured clone sends as they are. */
const cloned = <A>(expected: string, is: (value: unknown) => value is A) => Schema.declare(is, { expected })

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
    bytes: cloned("an ArrayBuffer", (value): value is ArrayBuffer => value instanceof ArrayBuffer)
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

/** A request that is answered once. */
export interface One<Payload, Answer> {
  readonly kind: "one"
  readonly payload: Payload
  readonly answer: Answer
}

/** A request that is answered by a stream. */
export interface Many<Payload, Answer> {
  readonly kind: "many"
  readonly payload: Payload
  readonly answer: Answer
}

interface Conversation {
  readonly messages: typeof Messages.Type
  readonly options: typeof ChatOptions.Type
}

/** The requests. A worker has one model. All fail with a `ModelError`. */
export interface Requests {
  /** Reads the header and no more. */
  readonly Look: One<
    { readonly source: Source; readonly options: typeof OpenOptions.Type; readonly memory: boolean },
    Facts
  >
  /** The last one is `Loaded`; without a source, what was looked at is loaded. */
  readonly Open: Many<
    { readonly source: Source | undefined; readonly options: typeof OpenOptions.Type },
    typeof Progress.Type | typeof Loaded.Type
  >
  readonly Chat: Many<Conversation, string>
  /** The same in parts, the last of which is `done`. */
  readonly Reply: Many<Conversation, Piece>
  readonly Generate: Many<{ readonly prompt: string; readonly options: typeof GenerateOptions.Type }, string>
  /** The last one is `Kept`. */
  readonly Keep: Many<{ readonly name: string }, typeof Coming.Type | Kept>
  readonly Kept: One<void, ReadonlyArray<Kept>>
  /** Answers with the bytes that are free again. */
  readonly Forget: One<{ readonly name: string }, number>
  /** The last one is `Tested`. */
  readonly SelfTest: Many<
    {
      readonly options: typeof OpenOptions.Type
      /** The address of the folder of vectors. */
      readonly vectors: string
      readonly families: ReadonlyArray<Verdict.Family> | undefined
    },
    typeof Testing.Type | typeof Tested.Type
  >
  /** Of the model that is open. */
  readonly Gauge: One<void, Gauged>
  /** What the last self-test of a device found, if it is kept. */
  readonly Verdict: One<{ readonly options: typeof OpenOptions.Type }, Verdict.Verdict | undefined>
  readonly Cached: One<void, number>
}

/** Which of them are answered by a stream. */
export const kinds: { readonly [K in keyof Requests]: Requests[K]["kind"] } = {
  Look: "one",
  Open: "many",
  Chat: "many",
  Reply: "many",
  Generate: "many",
  Keep: "many",
  Kept: "one",
  Forget: "one",
  SelfTest: "many",
  Gauge: "one",
  Verdict: "one",
  Cached: "one"
}
