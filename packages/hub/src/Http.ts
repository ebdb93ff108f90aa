/**
 * Requests as a hub needs them: a token that goes to the hub alone, redirections that are followed by hand, errors that
 * say what to do, and no wait without an end.
 */
import { Clock, Context, Effect, Layer, Random, Redacted, type Scope } from "effect"
import { HttpError } from "./HubError.ts"
import { isLoopback } from "./ModelName.ts"
import * as Ranges from "./Ranges.ts"

/** The public hub. */
export const publicEndpoint = "https://huggingface.co"

/** One request, redirections not followed: as much of `fetch` as is used. */
export type Fetch = (url: string, init: {
  readonly method: string
  readonly headers: Record<string, string>
  readonly redirect: "manual"
  readonly signal: AbortSignal
  readonly body?: string
}) => Promise<Response>

/** How to ask. */
export interface Options {
  /** The hub (default: the public one). The token goes there and nowhere else. */
  readonly endpoint?: string | undefined
  readonly token?: Redacted.Redacted | undefined
  readonly fetch?: Fetch | undefined
  /** Nothing for so long is a broken connection (default: 30 s). */
  readonly stallMillis?: number | undefined
  /** How often a transfer is tried while nothing at all comes (default: 10, within some two minutes); a question 4 times. */
  readonly attempts?: number | undefined
  /** The wait before asking again for the first time; it doubles (default: 500 ms). */
  readonly backoffMillis?: number | undefined
  /** The longest wait that a server may ask for (default: 2 min). */
  readonly patienceMillis?: number | undefined
}

/** An answer, and what the redirections on the way to it said. */
export interface Answer {
  readonly response: Response
  /** The hash of the file, if the hub told it. */
  readonly sha256: string | undefined
}

/** What a request has of its own. */
export interface Request {
  readonly url: string
  readonly method?: string | undefined
  readonly headers?: Readonly<Record<string, string>> | undefined
  readonly body?: string | undefined
  /** Whether the caller looks at the status itself. */
  readonly anyStatus?: boolean
}

/** Asks servers. */
export class Http extends Context.Service<Http, {
  readonly endpoint: string
  readonly attempts: number
  readonly stallMillis: number
  /** One request, until the scope closes. Any status but 2xx and 416 is an error. */
  readonly request: (request: Request) => Effect.Effect<Answer, HttpError, Scope.Scope>
  /** Waits before attempt `failures + 1`, or fails with the error if that would take too long. */
  readonly pause: <E>(error: E, failures: number) => Effect.Effect<void, E>
}>()("@tg/hub/Http") {
  static readonly layer = (options: Options = {}): Layer.Layer<Http> => Layer.succeed(Http, make(options))
}

/** An address as it may be shown: what follows a question mark may be a signature. */
export const shown = (url: string): string => {
  const parsed = URL.parse(url)
  return parsed === null ? "the address" : `${parsed.origin}${parsed.pathname}`
}

const mostRedirects = 10

const make = (options: Options): Http["Service"] => {
  const { attempts = 10, backoffMillis = 500, patienceMillis = 120_000, stallMillis = 30_000 } = options
  const endpoint = (options.endpoint ?? publicEndpoint).replace(/\/+$/, "")
  const send = options.fetch ?? globalThis.fetch
  const once = (request: Request) =>
    Effect.gen(function*() {
      const controller = yield* Effect.acquireRelease(
        Effect.sync(() => new AbortController()),
        (it) => Effect.sync(() => it.abort())
      )
      const url = request.url
      const headers = {
        "accept-encoding": "identity",
        ...request.headers,
        ...authorization(url, endpoint, options.token)
      }
      const init: Parameters<Fetch>[1] = {
        method: request.method ?? "GET",
        headers,
        redirect: "manual",
        signal: controller.signal,
        ...(request.body === undefined ? {} : { body: request.body })
      }
      return yield* Effect.tryPromise({ try: () => send(url, init), catch: (cause) => unreachable(url, cause) }).pipe(
        Effect.timeoutOrElse({ duration: stallMillis, orElse: () => Effect.fail(stalled(url, stallMillis)) })
      )
    })
  return {
    endpoint,
    attempts,
    stallMillis,
    request: Effect.fnUntraced(function*(request: Request) {
      let url = request.url
      let sha256: string | undefined
      if (!isSafe(url, endpoint)) return yield* unsafe(url)
      if (!isSendable(options.token)) return yield* badToken(endpoint)
      for (let hop = 0; hop <= mostRedirects; hop++) {
        // what the caller says to one host is not for another
        const headers = isAt(url, request.url) ? request.headers : withoutAuthorization(request.headers)
        const response = yield* once({ ...request, headers, url })
        if (isAt(url, endpoint)) sha256 ??= Ranges.sha256Of(response.headers.get("x-linked-etag"))
        const location = response.status >= 300 && response.status < 400 ? response.headers.get("location") : null
        if (location === null) {
          const error = request.anyStatus === true ? undefined : errorOf(response, {
            url,
            hasToken: options.token !== undefined,
            now: yield* Clock.currentTimeMillis
          })
          return error === undefined ? { response, sha256 } : yield* error
        }
        yield* Effect.ignore(Effect.promise(() => response.body?.cancel() ?? Promise.resolve()))
        const next = nextOf(url, location)
        if (next instanceof HttpError) return yield* next
        url = next
      }
      return yield* new HttpError({ url: shown(request.url), problem: "redirect", detail: "redirects without an end" })
    }),
    pause: Effect.fnUntraced(function*<E>(error: E, failures: number) {
      const asked = error instanceof HttpError ? error.retryAfterMillis : undefined
      if (asked !== undefined && asked > patienceMillis) return yield* Effect.fail(error)
      const own = Math.min(30_000, backoffMillis * 2 ** (failures - 1)) * (0.75 + 0.5 * (yield* Random.next))
      yield* Effect.sleep(Math.max(asked ?? 0, own))
    })
  }
}

const isAt = (url: string, endpoint: string): boolean => URL.parse(url)?.origin === URL.parse(endpoint)?.origin

/** The header with the token, for the hub itself and where nobody can read along. */
const authorization = (
  url: string,
  endpoint: string,
  token: Redacted.Redacted | undefined
): Readonly<Record<string, string>> => {
  if (token === undefined || !isAt(url, endpoint)) return {}
  const { hostname, protocol } = new URL(url)
  return protocol === "https:" || isLoopback(hostname)
    ? { authorization: `Bearer ${Redacted.value(token).trim()}` }
    : {}
}

/** Whether a token can be in a header. Who is asked to send another one says so in an error, with all of it. */
const isSendable = (token: Redacted.Redacted | undefined): boolean =>
  token === undefined || /^[\x21-\x7e]+$/.test(Redacted.value(token).trim())

const badToken = (url: string): HttpError =>
  new HttpError({
    url: shown(url),
    problem: "unauthorized",
    detail: "the token in HF_TOKEN has characters that no token has; set it again"
  })

const withoutAuthorization = (headers: Request["headers"] = {}): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => name.toLowerCase() !== "authorization"))

/** Whether nobody on the way can change what is sent; how to reach the hub is its user's choice. */
const isSafe = (url: string, endpoint: string): boolean => {
  const parsed = URL.parse(url)
  return parsed?.protocol === "https:" || (parsed?.protocol === "http:" && isLoopback(parsed.hostname)) ||
    isAt(url, endpoint)
}

const unsafe = (url: string): HttpError =>
  new HttpError({
    url: shown(url),
    problem: "redirect",
    detail: "is where anyone on the way can change what is sent, and is not asked"
  })

const nextOf = (url: string, location: string): string | HttpError => {
  const next = URL.parse(location, url)
  const refuse = (detail: string) => new HttpError({ url: shown(url), problem: "redirect", detail })
  if (next === null || !/^https?:$/.test(next.protocol)) return refuse("redirects to what is no address of the web")
  const isSafe = next.protocol === "https:" || (isLoopback(next.hostname) && isLoopback(new URL(url).hostname))
  return isSafe ? next.href : refuse(`redirects to ${next.origin}, where anyone on the way can change what is sent`)
}

const causeOf = (cause: unknown): string => {
  if (!(cause instanceof Error)) return String(cause)
  const inner = cause.cause
  if (inner instanceof Error && "code" in inner) return `${inner.message || String(inner.code)}`
  return inner instanceof Error ? inner.message : cause.message
}

/** The error of a connection that broke. */
export const unreachable = (url: string, cause: unknown): HttpError =>
  new HttpError({
    url: shown(url),
    problem: "unreachable",
    detail: `there is no connection, or it broke: ${causeOf(cause)}`
  })

/** The error of a connection on which nothing comes. */
export const stalled = (url: string, millis: number): HttpError =>
  new HttpError({
    url: shown(url),
    problem: "stalled",
    detail: `nothing came for ${millis / 1000} s`
  })

const errorOf = (
  { headers, status }: Response,
  { hasToken, now, url }: { readonly url: string; readonly hasToken: boolean; readonly now: number }
): HttpError | undefined => {
  if ((status >= 200 && status < 300) || status === 416) return undefined
  const refuse = (problem: HttpError["problem"], detail: string) =>
    new HttpError({ url: shown(url), problem, detail: `${detail} (status ${status})` })
  if (status === 401) {
    return refuse(
      "unauthorized",
      hasToken
        ? "the token in HF_TOKEN is not accepted; make a new one"
        : "there is no such thing, or it is private; check the name, or put a token into HF_TOKEN"
    )
  }
  if (status === 403) {
    return refuse(
      "forbidden",
      hasToken
        ? "the token in HF_TOKEN does not allow this; open the page in a browser and accept its conditions"
        : "not for everyone; open the page in a browser, accept its conditions, and put a token into HF_TOKEN"
    )
  }
  if (status === 404 || status === 410) return refuse("not-found", "there is nothing; check the name")
  const wait = Ranges.retryAfterMillis(headers.get("retry-after"), now)
  if (status === 429 || status >= 500 || status === 408 || status === 425) {
    return new HttpError({
      url: shown(url),
      problem: "busy",
      detail: `the server cannot serve now${
        wait === undefined ? "" : `, and asks to wait for ${Math.ceil(wait / 1000)} s`
      }; try again later (status ${status})`,
      ...(wait === undefined ? {} : { retryAfterMillis: wait })
    })
  }
  return refuse("status", "the server refuses")
}

/**
 * Reads a body piece by piece. The reader is let go when `take` has enough: it answers `false` then.
 */
export const drain = <E>(
  { response, stallMillis, url }: { readonly response: Response; readonly url: string; readonly stallMillis: number },
  take: (bytes: Uint8Array) => Effect.Effect<boolean, E>
): Effect.Effect<void, E | HttpError> =>
  Effect.suspend(() => {
    const reader = response.body?.getReader()
    if (reader === undefined) return Effect.void
    const broken = (cause: unknown) => cause instanceof HttpError ? cause : unreachable(url, cause)
    const read = Effect.tryPromise({ try: () => reader.read(), catch: broken }).pipe(
      Effect.timeoutOrElse({ duration: stallMillis, orElse: () => Effect.fail(stalled(url, stallMillis)) })
    )
    const all = Effect.gen(function*() {
      while (true) {
        const { done, value } = yield* read
        if (done || !(yield* take(value))) return
      }
    })
    // nobody waits for a body to be given up
    return Effect.ensuring(all, Effect.sync(() => void reader.cancel().catch(() => {})))
  })
