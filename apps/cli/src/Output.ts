/** Writing to the terminal: results to stdout, everything else to stderr. */
import { Effect, type PlatformError, Stdio, Stream } from "effect"

/** Writes a text to stdout as it is. */
export const print = (text: string): Effect.Effect<void, PlatformError.PlatformError, Stdio.Stdio> =>
  printAll(Stream.make(text))

/** Writes texts to stdout as they come. */
export const printAll = <E, R>(
  texts: Stream.Stream<string, E, R>
): Effect.Effect<void, E | PlatformError.PlatformError, R | Stdio.Stdio> =>
  Effect.flatMap(Stdio.Stdio, ({ stdout }) => Stream.run(texts, stdout({ endOnDone: false })))

/** Writes a JSON value and a line end to stdout. */
export const printJson = (value: unknown): Effect.Effect<void, PlatformError.PlatformError, Stdio.Stdio> =>
  print(`${JSON.stringify(value, null, 2)}\n`)

/** Writes a line to stderr. That nobody listens there is no reason to fail. */
export const note = (line: string): Effect.Effect<void, never, Stdio.Stdio> =>
  Effect.flatMap(Stdio.Stdio, ({ stderr }) => Stream.run(Stream.make(`${line}\n`), stderr({ endOnDone: false }))).pipe(
    Effect.ignore
  )

/** The reader of our output has gone, as `head` does. */
export const isClosedPipe = (error: unknown): boolean => {
  let cause: unknown = error
  while (typeof cause === "object" && cause !== null) {
    if ("code" in cause && (cause.code === "EPIPE" || cause.code === "ERR_STREAM_DESTROYED")) return true
    cause = "reason" in cause && typeof cause.reason === "object" && cause.reason !== null
      ? cause.reason
      : "cause" in cause
      ? cause.cause
      : undefined
  }
  return false
}
