import { Schema } from "effect"

/** A gradient that does not exist: which operation, what was asked of it, what was found, what to do. */
export class GradError extends Schema.TaggedError<GradError>()("GradError", {
  operation: Schema.String,
  message: Schema.String
}) {}

/** Stops building the program. Building is plain code, so the error is thrown; it names the operation at fault. */
export const fail = (operation: string, asked: string, found: string, remedy: string): never => {
  throw new GradError({ operation, message: `${operation}: asked for ${asked}; found ${found}; ${remedy}` })
}
