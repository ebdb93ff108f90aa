import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Prompt from "../src/Prompt.ts"
import { parseTokens } from "../src/commands/Logits.ts"
import { UsageError } from "../src/Report.ts"

const asked = (given: Partial<Prompt.Asked>): Prompt.Asked => ({
  prompt: undefined,
  messages: undefined,
  system: undefined,
  raw: false,
  ...given
})
const user = { role: "user", content: "hi" }
const system = { role: "system", content: "Be short." }

describe("conversation", () => {
  it("is the prompt", () => assertEquals(Prompt.conversation(asked({ prompt: "hi" })), [user]))
  it("has the system text in front", () =>
    assertEquals(Prompt.conversation(asked({ prompt: "hi", system: "Be short." })), [system, user]))
  it("ends with the prompt", () => {
    const messages = [user, { role: "assistant", content: "hello" }]
    assertEquals(Prompt.conversation(asked({ messages, prompt: "hi" })), [...messages, user])
  })
  it("is the messages", () => assertEquals(Prompt.conversation(asked({ messages: [system, user] })), [system, user]))
  for (
    const [name, given] of [
      ["nothing", {}],
      ["a system text alone", { system: "x" }],
      ["no messages", { messages: [] }],
      ["system messages alone", { messages: [system] }],
      ["two system texts", { messages: [system, user], system: "x" }]
    ] as const
  ) {
    it(`refuses ${name}`, () => assert.instanceOf(Prompt.conversation(asked(given)), UsageError))
  }
})

describe("parseTokens", () => {
  it("reads ids", () => assertEquals(parseTokens("1, 22,333"), [1, 22, 333]))
  for (const text of ["", "1,,2", "a", "-1", "1.5", "1 2", "1e3", "99999999999999999999"]) {
    it(`refuses ${JSON.stringify(text)}`, () => assert.instanceOf(parseTokens(text), UsageError))
  }
})
