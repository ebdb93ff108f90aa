/** Reading headers as a service, so that a program can replace it. */
import { Context, type Effect, Layer } from "effect"
import type { ByteSource, ByteSourceError } from "./ByteSource.ts"
import { type Gguf, read } from "./Gguf.ts"
import type { GgufError } from "./GgufError.ts"

/** The first stage of loading a model: bytes to a checked header. */
export class GgufReader extends Context.Service<GgufReader, {
  readonly read: (source: ByteSource["Service"]) => Effect.Effect<Gguf, GgufError | ByteSourceError>
}>()("@tg/gguf/GgufReader") {
  static readonly layer = Layer.succeed(GgufReader, { read: (source) => read(source) })
}
