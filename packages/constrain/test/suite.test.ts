import { assert, it } from "@effect/vitest"
import { runSuite } from "./support/suite.ts"

it("JSON-Schema-Test-Suite, draft 2020-12: no schema that is accepted lets a wrong value through, or keeps a right one out", () => {
  const outcomes = runSuite()
  const wrong = outcomes.flatMap(({ description, file, wrong }) =>
    wrong.map((line) => `${file}: ${description}: ${line}`)
  )
  assert.deepStrictEqual(wrong, [])
  assert.isAtLeast(outcomes.filter(({ refused }) => refused === undefined).length, 358)
})
