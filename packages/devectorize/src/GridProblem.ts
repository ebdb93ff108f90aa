import { Schema } from "effect"

/** A launch grid the device cannot express. */
export class GridProblem extends Schema.TaggedError<GridProblem>()("GridProblem", {
  message: Schema.String
}) {}
