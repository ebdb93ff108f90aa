/** Beginnings of conversations kept outside of the device, where they outlive the process. */
import type { ByteSource, ByteSourceError } from "@tg/gguf/ByteSource"
import { Context, Effect } from "effect"
import type { ModelFile } from "./ModelFile.ts"
import type * as Session from "./Session.ts"

/** A kept beginning. */
export interface Found {
  /** Tokens at the beginning that are those asked for. */
  readonly shared: number
  /** Reads it; nothing if it is damaged or gone. */
  readonly load: Effect.Effect<Session.Snapshot | undefined>
}

/**
 * Keeps what sessions hold, by the identity of what computed it (`identityOf`). It may forget anything at any time; what it
 * gives back is whole.
 */
export class PrefixStore extends Context.Service<PrefixStore, {
  /** What shares most with the beginning of these tokens, if anything. */
  readonly find: (identity: string, tokens: ReadonlyArray<number>) => Effect.Effect<Found | undefined>
  readonly keep: (identity: string, snapshot: Session.Snapshot) => Effect.Effect<void>
}>()("@tg/engine/PrefixStore") {}

// Weights differ between files whose headers are equal; so many pieces of so many bytes tell them apart.
const samples = 32
const sampleBytes = 4096

/**
 * What rows of a cache depend on: the file (a digest of its header and of pieces of its weights), how the cache is stored and
 * how activations are read.
 */
export const identityOf: (
  source: ByteSource["Service"],
  { gguf }: ModelFile,
  how: { readonly cache: string; readonly activations: string }
) => Effect.Effect<string, ByteSourceError> = Effect.fn("PrefixStore.identityOf")(
  function*(source, { gguf }, { activations, cache }) {
    const header = yield* source.read(0, Math.min(gguf.dataOffset, source.size))
    const most = source.size - sampleBytes
    const pieces = yield* Effect.forEach(
      most <= gguf.dataOffset ? [] : Array.from({ length: samples }, (_, i) => i / (samples - 1)),
      (part) => source.read(Math.floor(gguf.dataOffset + part * (most - gguf.dataOffset)), sampleBytes)
    )
    const digests = yield* Effect.forEach([header, ...pieces], digest)
    const text = [source.size, cache, activations, ...digests].join(" ")
    return yield* digest(new TextEncoder().encode(text))
  }
)

/** SHA-256, in hexadecimal digits. */
export const digest = (bytes: Uint8Array): Effect.Effect<string> =>
  Effect.map(
    Effect.promise(() => crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>)),
    (hash) => Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("")
  )
