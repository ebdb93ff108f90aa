import { describe, expect, it } from "vitest"
import * as Conversation from "../src/Conversation.ts"

const said = (...texts: ReadonlyArray<string>): Conversation.Conversation =>
  texts.reduce(
    (conversation, text) =>
      Conversation.withLast(Conversation.asking(conversation, text), { text: `re: ${text}`, ending: "end" }),
    Conversation.empty("be brief")
  )

const texts = ({ turns }: Conversation.Conversation) => turns.map(({ text }) => text)

describe("Conversation", () => {
  it("asks with everything that was said before, and without the answer that is missing", () => {
    expect(Conversation.messagesOf(Conversation.asking(said("one"), "two"))).toEqual([
      { role: "system", content: "be brief" },
      { role: "user", content: "one" },
      { role: "assistant", content: "re: one" },
      { role: "user", content: "two" }
    ])
  })

  it("forgets what followed a question that is edited", () => {
    const before = said("one", "two", "three")
    const after = Conversation.editing(before, before.turns[2]!.id, "zwei")
    expect(texts(after)).toEqual(["one", "re: one", "zwei", ""])
    expect(Conversation.editing(before, "nobody", "x")).toBe(before)
    expect(Conversation.editing(before, before.turns[1]!.id, "an answer")).toBe(before)
  })

  it("asks the last question again", () => {
    expect(texts(Conversation.regenerating(said("one", "two")))).toEqual(["one", "re: one", "two", ""])
  })

  it("is found by its first words", () => {
    expect(Conversation.titleOf(Conversation.empty(""))).toBe("New chat")
    expect(Conversation.titleOf(said(" a\n b "))).toBe("a b")
    expect([...Conversation.titleOf(said("🙂".repeat(99)))]).toHaveLength(48)
  })

  it("survives storage; an answer that was on its way counts as stopped", () => {
    const whole = said("one")
    expect(Conversation.fromStored(structuredClone(whole))).toEqual(whole)
    const open = Conversation.fromStored(structuredClone(Conversation.asking(whole, "two")))
    expect(open?.turns.at(-1)).toMatchObject({ role: "assistant", ending: "stopped" })
  })

  it.each([null, 1, [], {}, { id: "a", changed: 1, system: "", turns: [{}] }])("refuses %j from storage", (value) => {
    expect(Conversation.fromStored(value)).toBeUndefined()
  })
})
