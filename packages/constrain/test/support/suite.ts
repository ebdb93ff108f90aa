/** The official test suite of JSON Schema against the grammars: which schemas are accepted, and whether any text is wrong. */
import { Result } from "effect"
import { readFileSync } from "node:fs"
import { Acceptor, JsonSchema } from "../../src/index.ts"
import { spellings } from "./spellings.ts"

/** A schema and values. */
export interface Group {
  /** The file of the suite that it is from. */
  readonly file: string
  readonly description: string
  readonly schema: unknown
  readonly tests: ReadonlyArray<{ readonly description: string; readonly data: unknown; readonly valid: boolean }>
}

/** What came of one schema. */
export interface Outcome {
  readonly file: string
  readonly description: string
  /** Why the schema is refused; undefined if it is accepted. */
  readonly refused: string | undefined
  readonly tests: number
  /** Valid values without a text, and invalid ones with one. */
  readonly wrong: ReadonlyArray<string>
}

/** The schemas of the suite, draft 2020-12, with the values that are tried on each; one a line. */
const readGroups = (): ReadonlyArray<Group> =>
  readFileSync(new URL("../vectors/json-schema-2020-12.jsonl", import.meta.url), "utf8").trimEnd().split("\n")
    .map((line) => JSON.parse(line) as Group)

/**
 * How the suite reads `format` in a file: `format.json` is about the vocabulary `format-annotation`, and `optional/format`
 * about `format-assertion`.
 */
export const formatIn = (file: string): "assert" | "annotate" => file === "format.json" ? "annotate" : "assert"

const runGroup = ({ description, file, schema, tests }: Group): Outcome =>
  Result.match(JsonSchema.compile(schema, { format: formatIn(file) }), {
    onFailure: (error) => ({ file, description, refused: error.message, tests: tests.length, wrong: [] }),
    onSuccess: (grammar) => ({
      file,
      description,
      refused: undefined,
      tests: tests.length,
      wrong: tests.flatMap(({ data, description, valid }) =>
        spellings(data).some((text) => Acceptor.accepts(grammar, text)) === valid
          ? []
          : [`${description}: ${valid ? "no text of" : "a text of"} ${JSON.stringify(data)}`]
      )
    })
  })

/** What comes of each schema of the suite. */
export const runSuite = (): ReadonlyArray<Outcome> => readGroups().map(runGroup)
