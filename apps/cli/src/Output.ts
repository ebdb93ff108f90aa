/**
 * Writing to the terminal: results to stdout, everything else to stderr. Control characters of files, models and errors are
 * written out here, for all commands. The text that a model generates goes to files and pipes as it is.
 */
import { Effect, type PlatformError, Stdio, Stream } from "effect"
import * as Escape from "./Escape.ts"

const toStdout = <E, R>(
  texts: Stream.Stream<string, E, R>
): Effect.Effect<void, E | PlatformError.PlatformError, R | Stdio.Stdio> =>
  Effect.flatMap(Stdio.Stdio, ({ stdout }) => Stream.run(texts, stdout({ endOnDone: false })))

/** Writes a text to stdout. */
export const print = (text: string): Effect.Effect<void, PlatformError.PlatformError, Stdio.Stdio> =>
  toStdout(Stream.make(Escape.text(text)))

/** Writes a text of ours to stdout as it is, with colours. */
export const printStyled = (text: string): Effect.Effect<void, PlatformError.PlatformError, Stdio.Stdio> =>
  toStdout(Stream.make(text))

/** Writes generated texts to stdout as they come: as they are, but to a terminal without what would steer it. */
export const printGenerated = <E, R>(
  texts: Stream.Stream<string, E, R>
): Effect.Effect<void, E | PlatformError.PlatformError, R | Stdio.Stdio> =>
  Effect.flatMap(
    Effect.flatMap(Stdio.Stdio, ({ stdoutIsTerminal }) => stdoutIsTerminal),
    (isTerminal) => toStdout(isTerminal ? Stream.map(texts, Escape.text) : texts)
  )

/** Writes a JSON value and a line end to stdout. */
export const printJson = (value: unknown): Effect.Effect<void, PlatformError.PlatformError, Stdio.Stdio> =>
  toStdout(Stream.make(`${Escape.json(JSON.stringify(value, null, 2))}\n`))

const toStderr = (text: string): Effect.Effect<void, never, Stdio.Stdio> =>
  Effect.flatMap(Stdio.Stdio, ({ stderr }) => Stream.run(Stream.make(text), stderr({ endOnDone: false }))).pipe(
    Effect.ignore
  )

/** Writes a line to stderr. That nobody listens there is no reason to fail. */
export const note = (line: string): Effect.Effect<void, never, Stdio.Stdio> => toStderr(`${Escape.text(line)}\n`)

/** Writes over the line of stderr that is not ended yet: from its beginning, and erases the rest. */
export const over = (line: string): Effect.Effect<void, never, Stdio.Stdio> => toStderr(`\r${Escape.line(line)}\x1b[K`)

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
