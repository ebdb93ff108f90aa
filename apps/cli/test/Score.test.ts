import { assert, describe, it } from "@effect/vitest"
import * as Score from "../src/Score.ts"

const question = (given: Partial<Score.Question>): Score.Question => ({
  id: "q",
  task: "t",
  messages: [],
  expected: "4",
  check: { kind: "exact" },
  ...given
})

describe("isRight", () => {
  it("exact: the text and nothing else", () => {
    assert.isTrue(Score.isRight(question({}), "4"))
    assert.isFalse(Score.isRight(question({}), "4."))
    assert.isFalse(Score.isRight(question({}), " 4"))
  })
  it("thinking: what follows the last end of thoughts", () => {
    assert.isTrue(Score.isRight(question({ thinking: true }), "2 + 2</think>4"))
    assert.isTrue(Score.isRight(question({ thinking: true }), "4"))
    assert.isFalse(Score.isRight(question({ thinking: false }), "2 + 2</think>4"))
    assert.isFalse(Score.isRight(question({ thinking: true }), "4</think>5"))
  })

  const json = question({ check: { kind: "json", types: { name: "string", age: "number" } } })
  const cases: ReadonlyArray<readonly [string, boolean]> = [
    ["{\"name\": \"Max\", \"age\": 12}", true],
    ["{\"name\": \"\", \"age\": -1}", true],
    ["{\"age\": 12, \"name\": \"Max\"}", false],
    ["{\"name\": \"Max\"}", false],
    ["{\"name\": \"Max\", \"age\": 12, \"city\": \"Lyon\"}", false],
    ["{\"name\": \"Max\", \"age\": \"12\"}", false],
    ["{\"name\": \"Max\", \"age\": 12.5}", false],
    ["{\"name\": \"Max\", \"age\": 12.0}", false],
    ["{\"name\": \"Max\", \"age\": 1e2}", false],
    ["{\"name\": \"Max\", \"age\": null}", false],
    ["[\"name\", \"age\"]", false],
    ["null", false],
    ["name: Max", false]
  ]
  for (const [text, expected] of cases) {
    it(`json: ${text} is ${expected ? "right" : "wrong"}`, () =>
      assert.strictEqual(Score.isRight(json, text), expected))
  }
})

describe("quantisationOf", () => {
  const tensors = [{ type: "F32", bytes: 10 }, { type: "Q4_K", bytes: 60 }, { type: "Q6_K", bytes: 30 }]
  it("goes by the file's own word", () => assert.strictEqual(Score.quantisationOf(2, tensors), "Q4_0"))
  it("else by the type of most bytes", () => {
    assert.strictEqual(Score.quantisationOf(undefined, tensors), "Q4_K")
    assert.strictEqual(Score.quantisationOf(999, tensors), "Q4_K")
  })
})
