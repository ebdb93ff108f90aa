/** Events to what is sent: one JSON value, or server-sent events. */
import { Cause, Effect, Stream } from "effect"
import { Sse } from "effect/encoding"
import { HttpServerResponse } from "effect/http"
import * as ApiError from "./ApiError.ts"
import type { Event } from "./Answers.ts"
import type { Usage } from "./Usage.ts"

/** How one kind of answers is written. */
export interface Writer<Choice> {
  readonly push: (event: Event) => ReadonlyArray<Choice>
  readonly usage: () => Usage
  /** A piece of the answer. */
  readonly chunk: (choices: ReadonlyArray<Choice>, usage: Usage | null | undefined) => unknown
  /** The whole answer. */
  readonly collect: (choices: ReadonlyArray<Choice>, usage: Usage) => unknown
}

type Events = Stream.Stream<Event, ApiError.ApiError>

/** The answer as one value, when it is complete. */
export const whole = Effect.fn("Responses.whole")(function*<Choice>(events: Events, writer: Writer<Choice>) {
  const choices: Array<Choice> = []
  yield* Stream.runForEach(events, (event) => Effect.sync(() => void choices.push(...writer.push(event))))
  return HttpServerResponse.jsonUnsafe(writer.collect(choices, writer.usage()))
})

const line = (value: unknown): string =>
  Sse.encoder.write({
    _tag: "Event",
    event: "message",
    id: undefined,
    data: typeof value === "string" ? value : JSON.stringify(value)
  })

/**
 * The answer as it is generated. An error on the way is the last event, in OpenAI's form, and there is no `[DONE]` then.
 * With `includeUsage` the last chunk has the usage, and no choices.
 */
export const streaming = <Choice>(
  events: Events,
  writer: Writer<Choice>,
  { includeUsage }: { readonly includeUsage: boolean }
): HttpServerResponse.HttpServerResponse => {
  const pending = includeUsage ? null : undefined
  const lines = events.pipe(
    Stream.map((event) => writer.push(event).map((choice) => line(writer.chunk([choice], pending))).join("")),
    Stream.filter((text) => text !== ""),
    Stream.concat(
      Stream.sync(() => (includeUsage ? line(writer.chunk([], writer.usage())) : "") + line("[DONE]"))
    ),
    Stream.catchCause((cause) => Stream.make(line(failure(cause).body)))
  )
  return HttpServerResponse.stream(Stream.encodeText(lines), {
    contentType: "text/event-stream; charset=utf-8",
    headers: { "cache-control": "no-cache", "x-accel-buffering": "no" }
  })
}

/** What the client is told of a failure. Of a defect, no more than that it is one. */
export const failure = (cause: Cause.Cause<unknown>): ApiError.ApiError => {
  const error = Cause.squash(cause)
  return error instanceof ApiError.ApiError
    ? error
    : ApiError.failed("the server failed to answer; its log says why", { code: "internal_error" })
}
