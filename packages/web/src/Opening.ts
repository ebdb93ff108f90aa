/** From a source to a model on a device, in the worker. */
import { ModelFile } from "@tg/engine"
import { type Engine, fromModel } from "@tg/engine/Engine"
import * as Loading from "@tg/engine/Loading"
import * as MemoryPlan from "@tg/engine/MemoryPlan"
import * as Sampler from "@tg/engine/Sampler"
import type { ByteSource } from "@tg/gguf/ByteSource"
import * as Families from "@tg/models/Apart"
import { Context, Effect, Layer } from "effect"
import * as CodeBooks from "./CodeBooks.ts"
import * as Devices from "./Devices.ts"
import type { DeviceInfo, Facts, Loaded, Memory, OpenOptions, Progress, Source } from "./Protocol.ts"
import * as LargeTensors from "./LargeTensors.ts"
import * as ProgramStore from "./ProgramStore.ts"
import * as Sources from "./Source.ts"

declare global {
  /** What `bundle.ts` calls the code that it has bundled; elsewhere it is not defined. */
  var TG_BUILD: string | undefined
  /** The folder of programs that were compiled with the bundle, relative to its modules; elsewhere it is not defined. */
  var TG_PROGRAMS: string | undefined
}

/** Programs are kept by a build that has a name; those of a kind of WebAssembly may have come with it. */
const programs = (kind?: string): Layer.Layer<never> =>
  typeof TG_BUILD !== "string" ? Layer.empty : ProgramStore.layer(
    TG_BUILD,
    typeof TG_PROGRAMS === "string" && kind !== undefined
      ? new URL(`${TG_PROGRAMS}/${kind}.json`, import.meta.url).href
      : undefined
  )

/** What is compiled before a model is ready. */
export const prepared = ["last", Sampler.greedy] as const

/** A model whose header was read. */
export interface Header {
  readonly source: ByteSource["Service"]
  readonly model: ModelFile.ModelFile
}

/** Reads the header of a file. */
export const header = Effect.fn("Opening.header")(function*(file: Source) {
  const { gguf, source } = yield* Sources.open(file)
  if (gguf.tensors.some(({ type }) => CodeBooks.isCoded(type))) yield* CodeBooks.fetched
  if (gguf.tensors.some(LargeTensors.isLarge)) yield* LargeTensors.fetched
  const families = yield* Families.familyOf(gguf.metadata.get("general.architecture")?.value)
  const header: Header = { source, model: yield* ModelFile.ofGguf(gguf, families) }
  return header
})

/** The device of these options. It belongs to the Scope. */
export const device = ({ device = "auto", threads }: typeof OpenOptions.Type) =>
  Layer.build(Layer.fresh(Devices.layer(device, { threads, programs })))

/** Tokens of a conversation that memory is told for, where nobody says how many. */
const usualContext = 4096

const largestType = ({ gguf }: ModelFile.ModelFile): string => {
  const bytes = new Map<string, number>()
  for (const { bytes: more, type } of gguf.tensors) bytes.set(type, (bytes.get(type) ?? 0) + more)
  return [...bytes].reduce((a, b) => b[1] > a[1] ? b : a)[0]
}

const parametersOf = ({ gguf }: ModelFile.ModelFile): number =>
  gguf.tensors.reduce((sum, { dims }) => sum + dims.reduce((a, b) => a * b, 1), 0)

/** What a model will take on the device at hand. */
export const memory = Effect.fn("Opening.memory")(function*({ model }: Header, asked: number | undefined) {
  const context = Math.min(asked ?? usualContext, model.config.contextLength)
  const setting = yield* Loading.settingOf(model, { context })
  const { memory } = yield* MemoryPlan.whole(model, setting)
  const { kvBytes, weightBytes } = memory
  const told: Memory = {
    context,
    weightBytes,
    kvBytes,
    mostBytes: MemoryPlan.mostBytes(memory),
    deviceBytes: setting.profile.memoryBytes
  }
  return told
})

/** What a header says. */
export const facts = ({ model }: Header, device: DeviceInfo): Facts => {
  const { config, gguf } = model
  return {
    name: config.name,
    architecture: String(gguf.metadata.get("general.architecture")?.value),
    fileBytes: gguf.size,
    parameters: parametersOf(model),
    weightType: largestType(model),
    contextLength: config.contextLength,
    chats: gguf.metadata.has("tokenizer.chat_template"),
    device
  }
}

/** A model on its device. */
export interface Running {
  readonly loaded: typeof Loaded.Type
  readonly engine: Engine["Service"]
  /** The device that it was loaded to; it may have been replaced since. */
  readonly services: Context.Context<Devices.Services>
}

/** How far loading is. */
export type Event = typeof Progress.Type | typeof Loaded.Type

/** Loads a model; it stays on its device until the Scope closes. A device that is lost is replaced. */
export const load = Effect.fn("Opening.load")(function*(
  { model, source }: Header,
  { options, say, services }: {
    readonly options: typeof OpenOptions.Type
    readonly services: Context.Context<Devices.Services>
    readonly say: (event: Event) => Effect.Effect<unknown>
  }
) {
  const engine = yield* fromModel(source, model, {
    context: options.context,
    prepare: prepared,
    rebuild: device(options),
    onProgress: ({ loadedBytes, totalBytes }) => Effect.asVoid(say({ _tag: "Progress", loadedBytes, totalBytes }))
  }).pipe(Effect.provide(services))
  const loaded: typeof Loaded.Type = {
    _tag: "Loaded",
    name: model.config.name,
    context: engine.context,
    device: Context.get(services, Devices.Chosen)
  }
  const running: Running = { loaded, engine, services }
  return running
})
