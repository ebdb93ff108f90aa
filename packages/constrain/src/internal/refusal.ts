/** How the parts of the schema compiler give up; `JsonSchema.compile` makes a typed error of it. */
import { UnsupportedSchema } from "../ConstrainError.ts"
import { TooManyStates, TooManySteps } from "./charDfa.ts"
import { type Formula, type SchemaNode, TooComplex } from "./formula.ts"

/** Thrown where a keyword cannot be enforced. */
export class Refusal {
  readonly error: UnsupportedSchema
  constructor(path: string, keyword: string, reason: string) {
    this.error = new UnsupportedSchema({ path, keyword, reason })
  }
}

/** A JSON pointer, one step on. */
export const child = (path: string, ...steps: ReadonlyArray<string | number>): string =>
  steps.reduce<string>((at, step) => `${at}/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`, path)

/** The first schema of a formula: where an error about all of it is reported. */
const firstPath = (formula: Formula): string => {
  switch (formula._tag) {
    case "Schema":
      return formula.schema.path
    case "Not":
      return firstPath(formula.part)
    case "And":
    case "Or":
      return firstPath(formula.parts[0]!)
    default:
      return "#"
  }
}

/** Runs a step of the compilation: what it throws for lack of states or combinations becomes a refusal at a path. */
export const at = <A>(where: Formula | SchemaNode, keyword: string, run: () => A): A => {
  try {
    return run()
  } catch (cause) {
    const path = "_tag" in where ? firstPath(where) : where.path
    if (cause instanceof TooManyStates) throw new Refusal(path, keyword, `needs more than ${cause.limit} states`)
    if (cause instanceof TooManySteps) {
      throw new Refusal(
        path,
        keyword,
        `takes more than ${cause.limit} steps to compile; split it or simplify its patterns`
      )
    }
    if (cause instanceof TooComplex) throw new Refusal(path, keyword, cause.reason)
    throw cause
  }
}
