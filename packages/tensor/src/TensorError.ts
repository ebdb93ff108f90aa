import { Schema } from "effect"

/** A tensor program that cannot be built: which operation, what was asked, what was found, what to do. */
export class TensorError extends Schema.TaggedError<TensorError>()("TensorError", {
  operation: Schema.String,
  message: Schema.String
}) {}

/** Throws: building is plain code, and the stack trace then has the line at fault. */
export const fail = (operation: string, asked: string, found: string, remedy: string): never => {
  throw new TensorError({ operation, message: `${operation}: asked for ${asked}; found ${found}; ${remedy}` })
}
