/** Model files of a page: blobs, addresses, names, and what the browser keeps. */
import { type ByteSource, ByteSourceError } from "@tg/gguf/ByteSource"
import { GgufReader } from "@tg/gguf/GgufReader"
import * as Split from "@tg/gguf/Split"
import * as Http from "@tg/hub/Http"
import * as HttpByteSource from "@tg/hub/HttpByteSource"
import type { HttpError, TransferError } from "@tg/hub/HubError"
import * as ModelName from "@tg/hub/ModelName"
import { Effect } from "effect"
import * as BlobByteSource from "./BlobByteSource.ts"
import * as Keeping from "./Keeping.ts"
import type * as Protocol from "./Protocol.ts"

/** The whole file, kept by the browser outside of the JavaScript heap. */
const whole = (url: string): Effect.Effect<ByteSource["Service"], ByteSourceError> =>
  Effect.tryPromise({
    try: async (signal) => {
      const response = await fetch(url, { signal })
      if (!response.ok) throw new Error(`the server answers ${response.status}`)
      return BlobByteSource.make(Http.shown(url), await response.blob())
    },
    catch: (cause) =>
      new ByteSourceError({
        source: Http.shown(url),
        offset: 0,
        length: 0,
        problem: "unavailable",
        detail: String(cause)
      })
  })

/** A file at an address. From a server that sends ranges only what is read is fetched, else the whole. */
const atAddress = (url: string): Effect.Effect<ByteSource["Service"], ByteSourceError | HttpError | TransferError> =>
  HttpByteSource.open(url).pipe(
    Effect.catchTag(
      "TransferError",
      (error): Effect.Effect<ByteSource["Service"], ByteSourceError | TransferError> =>
        error.problem === "ignores-ranges" ? whole(url) : Effect.fail(error)
    ),
    Effect.provide(Keeping.http)
  )

/** A header, and the bytes that it is about. */
const withHeader = (source: ByteSource["Service"]) =>
  Effect.map(Effect.flatMap(GgufReader, ({ read }) => read(source)), (gguf) => ({ source, gguf }))

/** All parts of a model as one. */
const joined = Effect.fnUntraced(function*(name: string, files: ReadonlyArray<File>) {
  const parts = yield* Effect.forEach(files, (file) => withHeader(BlobByteSource.make(file.name, file)))
  if (parts.length === 1) return parts[0]!
  return {
    source: Split.concatenate(name, parts.map(({ source }) => source)),
    gguf: yield* Effect.fromResult(Split.merge(parts.map(({ gguf }) => gguf)))
  }
})

/** Opens a model, and reads its header. */
export const open = Effect.fn("Source.open")(function*(source: Protocol.Source) {
  switch (source._tag) {
    case "Blob":
      return yield* withHeader(BlobByteSource.make(source.name, source.blob))
    case "Address":
      return yield* withHeader(yield* atAddress(source.url))
    case "Name": {
      const name = yield* Effect.fromResult(ModelName.parse(source.name))
      const remote = yield* Effect.promise(() => import("@tg/hub/RemoteGguf"))
      return yield* Effect.provide(remote.open(name), Keeping.http)
    }
    case "Kept": {
      const { files } = yield* Keeping.store
      return yield* joined(source.name, yield* files(source.name))
    }
  }
})
