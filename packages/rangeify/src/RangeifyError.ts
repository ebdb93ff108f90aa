import { Schema } from "effect"

/** A tensor graph that has no schedule. */
export class RangeifyError extends Schema.TaggedError<RangeifyError>()("RangeifyError", {
  reason: Schema.Literals(["InvalidGraph", "OrderCycle", "TooManyBuffers", "BufferTooLarge", "BrokenPass"]),
  message: Schema.String
}) {}
