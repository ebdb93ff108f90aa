/** The official test suite of JSON Schema against the grammars: which schemas are accepted, and whether any text is wrong. */
import { Result } from "effect"
import * as fs from "node:fs"
import * as path from "node:path"
import { Acceptor, JsonSchema } from "../../src/index.ts"
import { spellings } from "./spellings.ts"

export interface Group {
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

/** The suite in the folder beside the repository; absent from a fresh clone. */
export const suiteFolder = path.resolve(
  import.meta.dirname,
  "../../../../../shared/json-schema-suite/tests/draft2020-12"
)

export const readGroups = (file: string): ReadonlyArray<Group> =>
  JSON.parse(fs.readFileSync(file, "utf8")) as ReadonlyArray<Group>

/** All files of a folder, below it too, by their relative names. */
export const filesIn = (folder: string): ReadonlyArray<string> =>
  fs.readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".json")).sort()

export const runGroup = (file: string, { description, schema, tests }: Group): Outcome =>
  Result.match(JsonSchema.compile(schema), {
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

export const runSuite = (folder: string): ReadonlyArray<Outcome> =>
  filesIn(folder).flatMap((file) => readGroups(path.join(folder, file)).map((group) => runGroup(file, group)))
