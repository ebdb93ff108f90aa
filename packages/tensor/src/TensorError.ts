import { Schema } from "effect"

/** A tensor program that cannot mean anything: which operation, what was asked of it, what it found, what to do. */
export class TensorError extends Schema.TaggedError<TensorError>()("TensorError", {
  operation: Schema.String,
  message: Schema.String
}) {}

/** Stops building the program. Building is plain code, so the error is thrown; it names the line at fault. */
export const fail = (operation: string, asked: string, found: string, remedy: string): never => {
  throw new TensorError({ operation, message: `${operation}: asked for ${asked}; found ${found}; ${remedy}` })
}
