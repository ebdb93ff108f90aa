/** Headers of models that are not here: only what a header takes is fetched. */
import type { ByteSource, ByteSourceError } from "@tg/gguf/ByteSource"
import type { Gguf } from "@tg/gguf/Gguf"
import type { GgufError, WrongType } from "@tg/gguf/GgufError"
import { GgufReader } from "@tg/gguf/GgufReader"
import * as Split from "@tg/gguf/Split"
import { Effect } from "effect"
import type { Http } from "./Http.ts"
import * as HttpByteSource from "./HttpByteSource.ts"
import * as Hub from "./Hub.ts"
import type { TransferError } from "./HubError.ts"
import type { ModelName } from "./ModelName.ts"

/** A model that is elsewhere, with its header. */
export interface RemoteGguf {
  readonly source: ByteSource["Service"]
  readonly gguf: Gguf
}

/** Why a header could not be read. */
export type OpenError = Hub.LookupError | TransferError | ByteSourceError | GgufError | Split.SplitError | WrongType

/** Reads the header of a model, of all its parts if it has several. */
export const open: (name: ModelName) => Effect.Effect<RemoteGguf, OpenError, Http> = Effect.fn("RemoteGguf.open")(
  function*(name) {
    const { read } = yield* GgufReader
    const files = yield* Hub.lookup(name)
    const parts = yield* Effect.forEach(files, ({ file, url }) =>
      Effect.gen(function*() {
        const source = yield* HttpByteSource.open(url, { name: file })
        return { source, gguf: yield* read(source) }
      }), { concurrency: 4 })
    const [first] = parts
    const part = yield* Effect.fromResult(Split.partOf(first!.gguf))
    if (part === undefined) return first!
    if (part.count !== parts.length) return yield* Split.single(files[0]!.file, part)
    return {
      source: Split.concatenate(files[0]!.file, parts.map(({ source }) => source)),
      gguf: yield* Effect.fromResult(Split.merge(parts.map(({ gguf }) => gguf)))
    }
  }
)
