/** Ranges of a file at an address, and answers that are believed only as far as they can be. */
import { Effect, type Scope } from "effect"
import * as Http from "./Http.ts"
import { HttpError, TransferError } from "./HubError.ts"
import * as Ranges from "./Ranges.ts"

/** A file at an address, as its server tells it. */
export interface Remote {
  readonly url: string
  readonly size: number
  /** To recognise this version of the file. */
  readonly validator: string | undefined
  /** Whether the server sends parts of it. */
  readonly hasRanges: boolean
  /** Of the whole file, if the hub tells it. */
  readonly sha256: string | undefined
  /** Another way to its bytes. */
  readonly parts?: Parts | undefined
}

/** Gives bytes of a file, in an answer that has them and nothing else. */
export type Parts = (wanted: Wanted) => Effect.Effect<Response, HttpError, Scope.Scope>

/** Whether another attempt may go better. */
export const isWorthRepeating = (error: unknown): boolean =>
  error instanceof HttpError ? error.isTransient : error instanceof TransferError && error.problem !== "changed" &&
    error.problem !== "no-size"

/** How often a question is asked: who waits for its answer has nothing yet. */
const mostQuestions = 4

/** Repeats a question that fails for a reason that may pass. */
export const repeating = <A, E, R>(
  http: Http.Http["Service"],
  attempt: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.gen(function*() {
    for (let failures = 1;; failures++) {
      const result = yield* Effect.result(attempt)
      if (result._tag === "Success") return result.success
      if (!isWorthRepeating(result.failure) || failures >= Math.min(mostQuestions, http.attempts)) {
        return yield* Effect.fail(result.failure)
      }
      yield* http.pause(result.failure, failures)
    }
  })

/** Asks for the first byte of a file, and learns what the server tells about the whole. */
export const probe = Effect.fn("hub.probe")(function*(url: string) {
  const http = yield* Http.Http
  return yield* repeating(http, Effect.scoped(probeOnce(http, url)))
})

const probeOnce = Effect.fnUntraced(function*(http: Http.Http["Service"], url: string) {
  const { response: { headers, status }, sha256 } = yield* http.request({ url, headers: { range: "bytes=0-0" } })
  const found = { url, validator: Ranges.validatorOf(headers), sha256 }
  const refuse = (problem: TransferError["problem"], detail: string) =>
    new TransferError({ url: Http.shown(url), problem, detail })
  if (status === 206) {
    const range = Ranges.parseContentRange(headers.get("content-range"))
    if (range?.start !== 0 || range.end !== 1) {
      return yield* refuse("wrong-range", `was asked for its first byte and sends "${headers.get("content-range")}"`)
    }
    const remote: Remote = { ...found, size: range.size, hasRanges: true }
    return remote
  }
  const size = status === 416 ? Ranges.parseUnsatisfied(headers.get("content-range")) : lengthOf(headers)
  if (size === undefined || (status === 416 && size !== 0)) {
    return yield* refuse("no-size", "the server does not tell how long the file is; fetch it in another way")
  }
  const remote: Remote = { ...found, size, hasRanges: false }
  return remote
})

const lengthOf = (headers: Headers): number | undefined => {
  const text = headers.get("content-length")
  const encoding = headers.get("content-encoding") ?? "identity"
  return text === null || !/^\d+$/.test(text) || encoding !== "identity" ? undefined : Number(text)
}

/** Bytes from `start` up to `end`. */
export interface Wanted {
  readonly start: number
  readonly end: number
}

/** A part of a file that comes: from where it was asked for, up to `end`. */
export interface Coming {
  readonly response: Response
  readonly end: number
}

/**
 * Asks for a part of a file. What comes begins where it was asked to and may end earlier. Whoever answers with another
 * version of the file, with another part, or with all of it, is not read.
 */
export const range = (
  http: Http.Http["Service"],
  remote: Pick<Remote, "url" | "size" | "validator" | "parts">,
  { end, start }: Wanted
): Effect.Effect<Coming, HttpError | TransferError, Scope.Scope> =>
  Effect.gen(function*() {
    const { parts, size, url, validator } = remote
    if (parts !== undefined) return { response: yield* parts({ start, end }), end }
    const headers = {
      range: `bytes=${start}-${end - 1}`,
      ...(validator === undefined ? {} : { "if-range": validator })
    }
    const { response } = yield* http.request({ url, headers })
    const refuse = (problem: TransferError["problem"], detail: string) =>
      new TransferError({ url: Http.shown(url), problem, detail })
    const found = Ranges.validatorOf(response.headers)
    if (validator !== undefined && found !== undefined && found !== validator) {
      return yield* refuse(
        "changed",
        `the file is no longer the one it was (${validator}, now ${found}); pull it again`
      )
    }
    if (response.status === 416) {
      return yield* refuse("changed", `the file had ${size} bytes, and has fewer now; pull it again`)
    }
    if (response.status !== 206) {
      const length = lengthOf(response.headers)
      return yield* length !== undefined && length !== size
        ? refuse("changed", `the file had ${size} bytes, and has ${length} now; pull it again`)
        : refuse("ignores-ranges", `bytes ${start} to ${end - 1} were asked for, and the server sends the whole file`)
    }
    const text = response.headers.get("content-range")
    const given = Ranges.parseContentRange(text)
    const encoding = response.headers.get("content-encoding") ?? "identity"
    if (given === undefined || given.start !== start || given.end > end || encoding !== "identity") {
      return yield* refuse("wrong-range", `bytes ${start} to ${end - 1} of ${size} were asked for, and "${text}" comes`)
    }
    if (given.size !== size) {
      return yield* refuse("changed", `the file had ${size} bytes, and has ${given.size} now; pull it again`)
    }
    return { response, end: given.end }
  })

/** More than was announced. */
export const tooMuch = (url: string, end: number): TransferError =>
  new TransferError({
    url: Http.shown(url),
    problem: "too-much",
    detail: `the server goes on after byte ${end - 1}, where it said it would end; it cannot be trusted`
  })

/** Less than was announced. */
export const tooLittle = (url: string, position: number, end: number): TransferError =>
  new TransferError({
    url: Http.shown(url),
    problem: "too-little",
    detail: `the server ended at byte ${position} of ${end}; try again`
  })
