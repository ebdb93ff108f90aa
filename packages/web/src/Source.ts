/** Model files of a page: blobs and addresses. */
import { type ByteSource, ByteSourceError } from "@tg/gguf/ByteSource"
import * as Http from "@tg/hub/Http"
import * as HttpByteSource from "@tg/hub/HttpByteSource"
import type { HttpError, TransferError } from "@tg/hub/HubError"
import { Effect } from "effect"
import * as BlobByteSource from "./BlobByteSource.ts"
import type * as Protocol from "./Protocol.ts"

/** A page never sees where a redirection goes: the browser follows it, by its own rules. */
const follow: Http.Fetch = (url, init) => fetch(url, { ...init, redirect: "follow" })

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

/** Opens a file. From a server that sends ranges only what is read is fetched, else the whole. */
export const open = (
  source: Protocol.Source
): Effect.Effect<ByteSource["Service"], ByteSourceError | HttpError | TransferError> =>
  source._tag === "Blob"
    ? Effect.succeed(BlobByteSource.make(source.name, source.blob))
    : HttpByteSource.open(source.url).pipe(
      Effect.catchTag(
        "TransferError",
        (error): Effect.Effect<ByteSource["Service"], ByteSourceError | TransferError> =>
          error.problem === "ignores-ranges" ? whole(source.url) : Effect.fail(error)
      ),
      Effect.provide(Http.Http.layer({ fetch: follow }))
    )
