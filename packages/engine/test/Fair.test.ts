import { describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Fair from "../src/Fair.ts"

const room = { tokens: 16, chunk: 6 }
const writer = (servedAt = 1): Fair.Waiting => ({ tokens: 1, rows: 1, servedAt })
const prompt = (tokens: number, servedAt = 1): Fair.Waiting => ({ tokens, rows: 1, servedAt })

describe("what a step takes", () => {
  it("is a token of each who writes", () => assertEquals(Fair.choose([writer(), writer()], room), [1, 1]))
  it("is all of a step where prompts are alone, those that wait longest first", () => {
    assertEquals(Fair.choose([prompt(40), prompt(40)], room), [15, 1])
    assertEquals(Fair.choose([prompt(40, 2), prompt(40, 1)], room), [1, 15])
    assertEquals(Fair.choose([prompt(3), prompt(40)], room), [3, 13])
  })
  it("is no more of prompts than a piece where others write", () =>
    assertEquals(Fair.choose([writer(), prompt(40), prompt(40)], room), [1, 5, 1]))
  it("is all rows that a writer waits for, drafts among them", () =>
    assertEquals(Fair.choose([{ tokens: 5, rows: 5, servedAt: 1 }, writer()], room), [5, 1]))
  it("is of those who wait longest, where there are more than fit", () =>
    assertEquals(Fair.choose([writer(3), writer(1), prompt(9, 2), writer(3)], { tokens: 2, chunk: 1 }), [0, 1, 1, 0]))
  it("never passes anyone over for good", () => {
    const waiting = Array.from({ length: 7 }, (_, i) => i % 3 === 0 ? prompt(1000) : writer())
    const served = waiting.map(() => 0)
    for (let step = 1; step <= 40; step++) {
      Fair.choose(waiting.map((each, i) => ({ ...each, servedAt: served[i]! })), { tokens: 3, chunk: 2 })
        .forEach((count, i) => {
          if (count > 0) served[i] = step
        })
    }
    assertEquals(served.every((at) => at > 36), true)
  })
})
