/**
 * Files that a hub keeps as Xet: in chunks that many files share, put together by the hub's library. What comes is held to
 * the same hash as what comes over HTTP, and goes through the same table.
 */
import { Effect, Scope } from "effect"
import * as Http from "./Http.ts"
import { HttpError } from "./HubError.ts"
import type { Parts } from "./Transfer.ts"

const library = Effect.promise(() => import("@huggingface/hub"))

/** A file of a repository, as its address tells. */
interface Place {
  readonly repo: { readonly type: "model"; readonly name: string }
  readonly revision: string
  readonly path: string
}

const placeOf = (url: string, endpoint: string): Place | undefined => {
  if (!url.startsWith(`${endpoint}/`)) return undefined
  const [, name, revision, path] = /^([^/]+\/[^/]+)\/resolve\/([^/]+)\/([^?#]+)/.exec(url.slice(endpoint.length + 1)) ??
    []
  if (name === undefined || revision === undefined || path === undefined) return undefined
  return { repo: { type: "model", name }, revision: decodeURIComponent(revision), path: decodeURIComponent(path) }
}

/** How to fetch parts of a file as Xet; nothing if the hub does not keep it so. */
export const open = Effect.fn("hub.xet")(function*(url: string) {
  const http = yield* Http.Http
  const place = placeOf(url, http.endpoint)
  if (place === undefined) return undefined
  const asked = { ...place, hubUrl: http.endpoint }
  const failed = (cause: unknown) => cause instanceof HttpError ? cause : Http.unreachable(url, cause)
  const info = yield* Effect.scoped(Effect.gen(function*() {
    const fetch = fetchIn(http, yield* Effect.scope)
    const { fileDownloadInfo } = yield* library
    return yield* Effect.tryPromise({ try: () => fileDownloadInfo({ ...asked, fetch }), catch: failed })
  }))
  if (info?.xet === undefined) return undefined
  const parts: Parts = ({ end, start }) =>
    Effect.gen(function*() {
      const fetch = fetchIn(http, yield* Effect.scope)
      const { downloadFile } = yield* library
      const blob = yield* Effect.tryPromise({
        // several requests at a time are ours already
        try: () => downloadFile({ ...asked, fetch, downloadInfo: info, parallelDownloads: false }),
        catch: failed
      })
      if (blob === null) return yield* Http.unreachable(url, "the file is gone")
      return new Response(blob.slice(start, end).stream())
    })
  return parts
})

/** `fetch` for the library, whose answers live as long as a scope. It looks at each status itself. */
const fetchIn = (http: Http.Http["Service"], scope: Scope.Scope): typeof fetch => (input, init) => {
  const url = typeof input === "string" ? input : input instanceof URL ? input.href : input.url
  const headers = Object.fromEntries(new Headers(init?.headers))
  return Effect.runPromise(
    http.request({ url, method: init?.method, headers, anyStatus: true }).pipe(
      Effect.map(({ response }) => response),
      Scope.provide(scope)
    )
  )
}
