/** What of the hub a page needs: files at addresses and of the hub, and the store. In the worker; fetched when it is asked for. */
import { type ByteSource, ByteSourceError } from "@tg/gguf/ByteSource"
import type { Gguf } from "@tg/gguf/Gguf"
import * as Split from "@tg/gguf/Split"
import * as BrowserMachine from "@tg/hub/BrowserMachine"
import * as Http from "@tg/hub/Http"
import * as HttpByteSource from "@tg/hub/HttpByteSource"
import type { HttpError, TransferError } from "@tg/hub/HubError"
import * as ModelName from "@tg/hub/ModelName"
import { OpfsStore } from "@tg/hub/OpfsStore"
import * as RemoteGguf from "@tg/hub/RemoteGguf"
import { Effect, Layer } from "effect"
import * as BlobByteSource from "./BlobByteSource.ts"
import { fromTagged } from "./ModelError.ts"

/** A page never sees where a redirection goes: the browser follows it, by its own rules. */
const follow: Http.Fetch = (url, init) => fetch(url, { ...init, redirect: "follow" })

/** How a page asks servers. */
const http: Layer.Layer<Http.Http> = Http.Http.layer({ fetch: follow })

/** The store of this origin. */
export const store = OpfsStore.pipe(
  Effect.provide(OpfsStore.layer().pipe(Layer.provide([http, BrowserMachine.layer]))),
  Effect.mapError(fromTagged)
)

/** What a person calls a model. */
export const named = (name: string) => Effect.fromResult(ModelName.parse(name))

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
export const atAddress = (
  url: string
): Effect.Effect<ByteSource["Service"], ByteSourceError | HttpError | TransferError> =>
  HttpByteSource.open(url).pipe(
    Effect.catchTag(
      "TransferError",
      (error): Effect.Effect<ByteSource["Service"], ByteSourceError | TransferError> =>
        error.problem === "ignores-ranges" ? whole(url) : Effect.fail(error)
    ),
    Effect.provide(http)
  )

/** A model of the hub with its header, in all its parts. */
export const remote = (name: string) =>
  Effect.flatMap(named(name), (name) => Effect.provide(RemoteGguf.open(name), http))

/** All parts of a model as one. */
export const joined = (
  name: string,
  parts: ReadonlyArray<{ readonly source: ByteSource["Service"]; readonly gguf: Gguf }>
) =>
  Effect.map(Effect.fromResult(Split.merge(parts.map(({ gguf }) => gguf))), (gguf) => ({
    source: Split.concatenate(name, parts.map(({ source }) => source)),
    gguf
  }))
