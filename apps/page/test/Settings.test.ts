import { expect, it } from "vitest"
import { fromStored, usual } from "../src/Settings.ts"

it.each([null, "", "no JSON", "3", "null"])("takes the usual settings for %j", (text) => {
  expect(fromStored(text)).toEqual(usual)
})

it("keeps what makes sense", () => {
  const stored = { temperature: 0.5, topP: 0, maxTokens: 1.5, theme: "dark", speed: "yes", constructor: 1 }
  expect(fromStored(JSON.stringify(stored))).toEqual({ ...usual, temperature: 0.5, theme: "dark" })
})
