/** Errors as they cross from the worker to the page. */
import { Schema } from "effect"

/**
 * What went wrong. `reason` is the tag of the engine's own error (`NotGguf`, `DoesNotFit`, `DeviceError`, `HttpError`, ...), or one of
 * this package: `InvalidRequest`, `NotOpen`, `WorkerFailed`, `Closed`. The message says what was asked, what was found and what to do.
 */
export class ModelError extends Schema.TaggedError<ModelError>()("ModelError", {
  reason: Schema.String,
  message: Schema.String
}) {}

/** An error of the engine, as the page gets it. */
export const fromTagged = (error: { readonly _tag: string; readonly message: string }): ModelError =>
  new ModelError({ reason: error._tag, message: error.message })
