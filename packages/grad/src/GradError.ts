import { Schema } from "effect"

/** A gradient that does not exist: which operation, what was asked, what was found, what to do. */
export class GradError extends Schema.TaggedError<GradError>()("GradError", {
  operation: Schema.String,
  message: Schema.String
}) {}

/** Throws: building is plain code. The error names the operation at fault. */
export const fail = (operation: string, asked: string, found: string, remedy: string): never => {
  throw new GradError({ operation, message: `${operation}: asked for ${asked}; found ${found}; ${remedy}` })
}
