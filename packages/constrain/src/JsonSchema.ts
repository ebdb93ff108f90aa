/** JSON Schema, draft 2020-12: the texts of the values that a schema allows. What would not be enforced exactly is refused. */
import { Result } from "effect"
import { UnsupportedSchema } from "./ConstrainError.ts"
import type { Grammar } from "./Grammar.ts"
import * as CharDfa from "./internal/charDfa.ts"
import { link } from "./internal/compile.ts"
import { Documents } from "./internal/documents.ts"
import { Emitter } from "./internal/emit.ts"
import { Formulas } from "./internal/formula.ts"
import { at, Refusal } from "./internal/refusal.ts"
import type { Rule } from "./internal/rule.ts"
import { SchemaReader } from "./internal/schemaReader.ts"

/** How a schema is read. */
export interface Options {
  /**
   * What `format` says. `assert` (the default): strings are of the format, and a format that is not enforced is refused.
   * `annotate`: nothing, as in draft 2020-12 without the vocabulary `format-assertion`.
   */
  readonly format?: "assert" | "annotate"
}

/** Steps that compiling may take: a second or two. */
const maxSteps = 32_000_000

const ruleOf = (schema: unknown, format: "assert" | "annotate"): Rule => {
  const formulas = new Formulas()
  const documents = new Documents(schema)
  const reader = new SchemaReader(formulas, documents, format)
  return at(rootNode, "schema", () => new Emitter(formulas, reader.normalOf).emit(reader.formulaOf(documents.root)))
}

const rootNode = { value: {}, path: "#", base: "" }

/** The grammar of a schema's values. */
export const compile = (
  schema: unknown,
  { format = "assert" }: Options = {}
): Result.Result<Grammar, UnsupportedSchema> =>
  Result.flatMap(
    Result.try({
      try: () => CharDfa.withSteps(maxSteps, () => ruleOf(schema, format)),
      catch: (cause) => {
        if (!(cause instanceof Refusal)) throw cause
        return cause.error
      }
    }),
    (rule) =>
      Result.mapBoth(link(rule), {
        onFailure: ({ reason }) => new UnsupportedSchema({ path: "#", keyword: "schema", reason }),
        onSuccess: (rule): Grammar => ({ _tag: "Rule", rule })
      })
  )
