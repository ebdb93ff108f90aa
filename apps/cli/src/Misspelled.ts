/** What is said of a flag or a command that there is none of: one line, with what may have been meant. */
import type { CliError } from "effect/cli"

/** The line of an error of the command line. */
export const message = (error: CliError.CliError): string => {
  switch (error._tag) {
    case "UnrecognizedOption":
      return `unknown flag ${error.option}${hint(error.suggestions)}`
    case "UnknownSubcommand":
      return `unknown command ${error.subcommand}${hint(error.suggestions)}`
    default:
      return error.message
  }
}

const hint = (suggestions: ReadonlyArray<string>): string =>
  suggestions.length === 0 ? "" : `, did you mean ${suggestions.join(" or ")}?`
