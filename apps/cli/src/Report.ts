/** How a command ends: errors become a few lines on stderr, and an exit code. */
import { Cause, Effect, PlatformError, Schema, type Stdio } from "effect"
import { CliError } from "effect/cli"
import * as Output from "./Output.ts"
import * as Words from "./Words.ts"

/** Flags or files that do not make sense together, or at all. */
export class UsageError extends Schema.TaggedError<UsageError>()("UsageError", { message: Schema.String }) {}

/** The lines that describe an error. */
export const describe = (error: unknown): string => {
  const message = PlatformError.isPlatformError(error)
    ? `${Words.cause(error)} (${error.reason.module}.${error.reason.method})`
    : error instanceof Error
    ? error.message
    : String(error)
  return `error: ${message.trim() === "" ? tagOf(error) : message.trim()}`
}

const tagOf = (error: unknown): string =>
  typeof error === "object" && error !== null && "_tag" in error ? String(error._tag) : "unknown"

/**
 * Prints why a program failed. Stack traces come with `debug` only. A reader of our output that went away has seen what
 * it wanted: that is success.
 */
export const handle =
  (options: { readonly debug: boolean }) =>
  <A, E, R>(program: Effect.Effect<A, E, R>): Effect.Effect<A | void, E, R | Stdio.Stdio> =>
    Effect.catchCause(program, (cause): Effect.Effect<void, E, Stdio.Stdio> => {
      if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause)
      const error = Cause.squash(cause)
      if (Output.isClosedPipe(error)) return Effect.void
      // the command line's own errors have been printed, with a hint
      const isShown = CliError.isCliError(error) && error._tag === "ShowHelp"
      const lines = options.debug
        ? Cause.pretty(cause)
        : Cause.hasDies(cause)
        ? `${describe(error)}\nThis is a defect of tg; --debug shows where it happened.`
        : describe(error)
      return Effect.andThen(isShown ? Effect.void : Output.note(lines), Effect.failCause(cause))
    })
