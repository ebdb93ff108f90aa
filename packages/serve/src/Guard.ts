/**
 * Who may ask: the names under which the server is reached, the pages that may use it, and the key.
 *
 * A page on the internet can make a browser send requests to this machine. Two checks keep it out. The `Host` of a request
 * has to be a name of this server: a page that has its own name point here (DNS rebinding) is refused. And an `Origin`, which
 * browsers send with everything that a page could use, has to be this server's own or an allowed one.
 */
import { Effect, Option, Redacted } from "effect"
import { Digest, Mac } from "effect/crypto"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import * as ApiError from "./ApiError.ts"
import { short } from "./internal/json.ts"

/** Who may ask. */
export interface Access {
  /** Names and addresses in `Host`, without ports. */
  readonly hosts: ReadonlyArray<string>
  /** Whether an address (instead of a name) may be any: for a server that listens on all of this machine's. */
  readonly anyAddress?: boolean | undefined
  /** Pages that may use the server, such as `https://example.org`; `*` is any. The server's own may without. */
  readonly origins: ReadonlyArray<string>
  /** What clients have to send as `Authorization: Bearer KEY`, for everything but `open` paths. */
  readonly key?: Redacted.Redacted | undefined
}

/** The names of this machine for itself. */
export const loopback: ReadonlyArray<string> = ["localhost", "127.0.0.1", "[::1]"]

/** Paths that need no key: they tell nothing of what is asked. */
const isOpen = (path: string): boolean => !path.startsWith("/v1/") && path !== "/metrics"

/** A host without its port. */
export const nameOf = (host: string): string => host.toLowerCase().replace(/:\d*$/, "").replace(/\.$/, "")

const isAddress = (name: string): boolean => /^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-f:.]+\])$/.test(name)

type Headers = HttpServerRequest.HttpServerRequest["headers"]

/** Why a request may not be answered, by where it says it comes from. */
export const refusal = (
  headers: Headers,
  { anyAddress = false, hosts, origins }: Access
): ApiError.ApiError | undefined => {
  const host = headers["host"]
  const name = nameOf(host ?? "")
  const isKnown = hosts.some((known) => nameOf(known) === name) || (anyAddress && isAddress(name))
  if (!isKnown) {
    return ApiError.forbidden(
      `the request is for the host ${short(JSON.stringify(host ?? ""), 100)}, which is no name of this server; ` +
        `--allow-host makes it one`,
      { code: "host_not_allowed" }
    )
  }
  const origin = headers["origin"]
  if (origin === undefined) {
    // a page's request without an Origin, such as an image: nothing could be read, and it is not answered either
    return headers["sec-fetch-site"] === "cross-site" && headers["sec-fetch-mode"] !== "navigate"
      ? ApiError.forbidden("the request comes from the page of another site", { code: "origin_not_allowed" })
      : undefined
  }
  return origin === `http://${host}` || isAllowed(origin, origins) ? undefined : ApiError.forbidden(
    `the request comes from a page of ${short(JSON.stringify(origin), 100)}, which may not use this server; ` +
      `--allow-origin lets it`,
    { code: "origin_not_allowed" }
  )
}

const isAllowed = (origin: string, origins: ReadonlyArray<string>): boolean =>
  origins.includes("*") || origins.includes(origin)

/** What a page needs to read the answer. */
const corsOf = (headers: Headers, { origins }: Access): Readonly<Record<string, string>> => {
  const origin = headers["origin"]
  if (origins.length === 0) return {}
  return origin !== undefined && isAllowed(origin, origins)
    ? {
      "access-control-allow-origin": origin,
      "access-control-expose-headers": "retry-after, x-request-id",
      vary: "origin"
    }
    : { vary: "origin" }
}

const preflight = (headers: Headers, access: Access): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.empty({
    status: 204,
    headers: {
      ...corsOf(headers, access),
      "access-control-allow-methods": "GET, POST",
      "access-control-allow-headers": headers["access-control-request-headers"] ?? "authorization, content-type",
      "access-control-max-age": "600",
      ...(headers["access-control-request-private-network"] === "true"
        ? { "access-control-allow-private-network": "true" }
        : {})
    }
  })

/** Checks every request in front of `app`, and lets allowed pages read the answer, errors too. */
export const make = Effect.fn("Guard.make")(function*(access: Access) {
  const digest = yield* Digest.Digest
  const encoder = new TextEncoder()
  const hash = (text: string) => digest.digest(Digest.sha256, encoder.encode(text))
  const key = access.key === undefined ? undefined : yield* hash(Redacted.value(access.key))

  const checkKey = Effect.fnUntraced(function*({ headers }: HttpServerRequest.HttpServerRequest, path: string) {
    if (key === undefined || isOpen(path)) return
    const [, given] = /^Bearer +(\S+)$/i.exec(headers["authorization"] ?? "") ?? []
    // digests have one length, whatever was sent, and are compared in a time that does not depend on where they differ
    const isRight = Mac.timingSafeEqual(yield* hash(given ?? ""), key)
    if (given === undefined || !isRight) {
      return yield* ApiError.unauthenticated(
        given === undefined
          ? "this server needs a key; send it as Authorization: Bearer KEY"
          : "the key is not that of this server",
        { code: "invalid_api_key" }
      )
    }
  })

  return <R>(app: Effect.Effect<HttpServerResponse.HttpServerResponse, never, R>) =>
    Effect.gen(function*() {
      const request = yield* HttpServerRequest.HttpServerRequest
      const path = request.url.split("?", 1)[0]!
      const refused = Option.fromUndefinedOr(refusal(request.headers, access))
      if (Option.isSome(refused)) return yield* refused.value
      if (request.method === "OPTIONS" && request.headers["access-control-request-method"] !== undefined) {
        return preflight(request.headers, access)
      }
      yield* checkKey(request, path)
      return yield* app
    }).pipe(
      Effect.catchTag("ApiError", (error) => Effect.succeed(error.response)),
      Effect.map(HttpServerResponse.setHeaders({
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin"
      })),
      (answered) =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ headers }) =>
          Effect.map(answered, HttpServerResponse.setHeaders(corsOf(headers, access))))
    )
})
