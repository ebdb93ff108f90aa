/** What is counted: requests, tokens, and how long they take. */
import { Clock, Effect, Metric, Stream } from "effect"
import type { Event } from "./Answers.ts"

/** Requests by path and status. */
export const requests = Metric.counter("http_requests_total", {
  description: "Requests that were answered, by path and status",
  incremental: true
})
/** Tokens of prompts. */
export const promptTokens = Metric.counter("prompt_tokens_total", {
  description: "Tokens of prompts, those from a cache included",
  incremental: true
})
/** Tokens of prompts that were in a cache. */
export const cachedTokens = Metric.counter("prompt_tokens_cached_total", {
  description: "Tokens of prompts that were in a cache",
  incremental: true
})
/** Generated tokens. */
export const generatedTokens = Metric.counter("generated_tokens_total", {
  description: "Tokens that were generated",
  incremental: true
})
/** Requests that are being answered. */
export const running = Metric.gauge("requests_running", { description: "Requests that are being answered" })
/** Requests that wait for their turn. */
export const waiting = Metric.gauge("requests_waiting", { description: "Requests that wait for their turn" })
/** Seconds from the turn to the first token. */
export const firstToken = Metric.histogram("first_token_seconds", {
  description: "Seconds from a request's turn to its first token",
  boundaries: Metric.exponentialBoundaries({ start: 0.005, factor: 2, count: 16 })
})
/** Seconds between two tokens. */
export const nextToken = Metric.histogram("next_token_seconds", {
  description: "Seconds between two tokens of an answer",
  boundaries: Metric.exponentialBoundaries({ start: 0.0005, factor: 2, count: 16 })
})

/** Measures answers on their way. */
export const watch = <E, R>(events: Stream.Stream<Event, E, R>): Stream.Stream<Event, E, R> =>
  Stream.suspend(() => {
    let last = 0
    let isFirst = true
    return Stream.tap(events, (event) =>
      Effect.flatMap(Clock.currentTimeMillis, (now) => {
        const seconds = (now - last) / 1000
        last = now
        if (event.type === "end") return Effect.void
        if (event.type === "begin") {
          isFirst = true
          return Effect.andThen(
            Metric.update(promptTokens, event.promptTokens),
            Metric.update(cachedTokens, event.cachedTokens)
          )
        }
        const times = isFirst ? firstToken : nextToken
        isFirst = false
        return Effect.andThen(Metric.update(generatedTokens, 1), Metric.update(times, seconds))
      }))
  })
