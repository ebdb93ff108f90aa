import { expect, it } from "vitest"
import { answer } from "../src/answer.ts"

it("answers", async () => {
  expect(await answer("model.gguf", "What is 17 + 25?")).toBe("17 + 25 = 42")
}, 60_000)

it("says what is wrong with a file", async () => {
  await expect(answer("absent.gguf", "Hi")).rejects.toMatchObject({ _tag: "ByteSourceError" })
})
