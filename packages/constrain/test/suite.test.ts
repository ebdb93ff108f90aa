import { assert, describe, it } from "@effect/vitest"
import * as fs from "node:fs"
import { runSuite, suiteFolder } from "./support/suite.ts"

const isThere = fs.existsSync(suiteFolder)
if (!isThere) console.warn(`SKIPPED: JSON-Schema-Test-Suite is not in ${suiteFolder}`)

/** Where the README says that we differ: `format` is enforced, and leap seconds are written in UTC only. */
const isDocumented = (file: string, line: string): boolean =>
  (file === "format.json" && line.includes("is only an annotation by default")) ||
  (file.startsWith("optional/format/") && line.includes("leap second") && line.includes("no text of"))

describe.skipIf(!isThere)("JSON-Schema-Test-Suite, draft 2020-12", () => {
  it("no schema that is accepted lets a wrong value through, or keeps a right one out", () => {
    const outcomes = runSuite(suiteFolder)
    const wrong = outcomes.flatMap(({ description, file, wrong }) =>
      wrong.filter((line) => !isDocumented(file, line)).map((line) => `${file}: ${description}: ${line}`)
    )
    assert.deepStrictEqual(wrong, [])
    assert.isAbove(outcomes.filter(({ refused }) => refused === undefined).length, 340)
  })
})
