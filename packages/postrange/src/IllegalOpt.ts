import { Schema } from "effect"

/** An opt that this kernel or this device does not allow. */
export class IllegalOpt extends Schema.TaggedError<IllegalOpt>()("IllegalOpt", {
  kernel: Schema.String,
  opt: Schema.String,
  message: Schema.String
}) {}
