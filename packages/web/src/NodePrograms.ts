/** Compiles the programs of a model for pages, in Node, so that a page that brings the model need not. */
import { fromModel } from "@tg/engine/Engine"
import * as ModelFile from "@tg/engine/ModelFile"
import { fromBytes } from "@tg/gguf/ByteSource"
import * as CompileCache from "@tg/jit/CompileCache"
import * as Models from "@tg/models/Models"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import { Effect, Layer } from "effect"
import { KeyValueStore, makeStringOnly } from "effect/persistence/KeyValueStore"
import { prepared } from "./Opening.ts"
import * as Replaying from "./Replaying.ts"
import * as Targets from "./Targets.ts"

/** A store that shows all it has. */
const remembering = (texts: Map<string, string>): KeyValueStore =>
  makeStringOnly({
    get: (key) => Effect.sync(() => texts.get(key)),
    set: (key, value) => Effect.sync(() => void texts.set(key, value)),
    remove: (key) => Effect.sync(() => texts.delete(key)),
    clear: Effect.sync(() => texts.clear()),
    size: Effect.sync(() => texts.size),
    keys: Effect.sync(() => [...texts.keys()])
  })

/**
 * The programs of a model on WebAssembly, as a page whose code has this name keeps them: by what they are for (`Targets.nameOf`), memory that
 * threads share or not, and each way in which processors multiply bytes. What a GPU runs depends on the GPU.
 */
export const compile = async (
  bytes: Uint8Array,
  build: string
): Promise<Readonly<Record<string, Readonly<Record<string, string>>>>> => {
  const compiled: Record<string, Readonly<Record<string, string>>> = {}
  for (const options of Targets.ofWasm) {
    const texts = new Map<string, string>()
    const cache = CompileCache.layerStore({ compiler: build }).pipe(
      Layer.provide(Layer.succeed(KeyValueStore, remembering(texts)))
    )
    const device = Replaying.layer(Targets.wasm(options)).pipe(
      Layer.provideMerge(WasmDevice.layer({ memory: options.memory })),
      Layer.provide(cache)
    )
    await Effect.runPromise(
      Effect.gen(function*() {
        const source = fromBytes("model", bytes)
        const model = yield* ModelFile.open(source).pipe(Effect.provide(Models.layer))
        yield* fromModel(source, model, { prepare: prepared })
      }).pipe(Effect.provide(device), Effect.scoped)
    )
    compiled[Targets.nameOf(options)] = Object.fromEntries(texts)
  }
  return compiled
}
