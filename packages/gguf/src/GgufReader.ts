/** Reading headers as a service. */
import { Context, type Effect } from "effect"
import type { ByteSource, ByteSourceError } from "./ByteSource.ts"
import { type Gguf, read, type ReadOptions } from "./Gguf.ts"
import type { GgufError } from "./GgufError.ts"

/** The first stage of loading a model: bytes to a checked header. */
export interface Reading {
  readonly read: (
    source: ByteSource["Service"],
    options?: ReadOptions
  ) => Effect.Effect<Gguf, GgufError | ByteSourceError>
}

/** The reader of models: `Gguf.read`, unless a Layer replaces it. */
export const GgufReader = Context.Reference<Reading>("@tg/gguf/GgufReader", { defaultValue: () => ({ read }) })
