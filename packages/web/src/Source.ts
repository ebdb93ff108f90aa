/** Model files of a page: blobs, addresses, names, and what the browser keeps. */
import { type ByteSource, fromBytes } from "@tg/gguf/ByteSource"
import { GgufReader } from "@tg/gguf/GgufReader"
import { Effect } from "effect"
import * as BlobByteSource from "./BlobByteSource.ts"
import * as Keeping from "./Keeping.ts"
import type * as Protocol from "./Protocol.ts"

const hub = Effect.promise(() => import("./Hub.ts"))

/** A header, and the bytes that it is about. */
const withHeader = (source: ByteSource["Service"]) =>
  Effect.map(Effect.flatMap(GgufReader, ({ read }) => read(source)), (gguf) => ({ source, gguf }))

/** Opens a model, and reads its header. */
export const open = Effect.fn("Source.open")(function*(source: Protocol.Source) {
  switch (source._tag) {
    case "Blob":
      return yield* withHeader(BlobByteSource.make(source.name, source.blob))
    case "Bytes":
      return yield* withHeader(fromBytes(source.name, new Uint8Array(source.bytes)))
    case "Address":
      return yield* withHeader(yield* (yield* hub).atAddress(source.url))
    case "Name":
      return yield* (yield* hub).remote(source.name)
    case "Kept": {
      const { files } = yield* Keeping.store
      const parts = yield* Effect.forEach(
        yield* files(source.name),
        (file) => withHeader(BlobByteSource.make(file.name, file))
      )
      return parts.length === 1 ? parts[0]! : yield* (yield* hub).joined(source.name, parts)
    }
  }
})
