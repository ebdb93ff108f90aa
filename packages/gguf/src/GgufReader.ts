/** Reading headers as a service, so that a program can replace it. */
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

/** What models are read with: `Gguf.read`, unless a Layer says otherwise. */
export const GgufReader = Context.Reference<Reading>("@tg/gguf/GgufReader", { defaultValue: () => ({ read }) })
