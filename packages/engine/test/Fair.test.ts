import { describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Fair from "../src/Fair.ts"

const room = { tokens: 16, chunk: 6 }
const writer = (servedAt = 1): Fair.Waiting => ({ tokens: 1, rows: 1, servedAt })
/** What a step of a few tokens takes. */
const taken = (waiting: ReadonlyArray<Fair.Waiting>, room: Fair.Room) => Fair.choose(waiting, room, "few").taken
const prompt = (tokens: number, servedAt = 1): Fair.Waiting => ({ tokens, rows: 1, servedAt })

describe("what a step takes", () => {
  it("is a token of each who writes", () => assertEquals(taken([writer(), writer()], room), [1, 1]))
  it("is all of a step where prompts are alone, those that wait longest first", () => {
    assertEquals(taken([prompt(40), prompt(40)], room), [15, 1])
    assertEquals(taken([prompt(40, 2), prompt(40, 1)], room), [1, 15])
    assertEquals(taken([prompt(3), prompt(40)], room), [3, 13])
  })
  it("is no more of prompts than a piece where others write", () =>
    assertEquals(taken([writer(), prompt(40), prompt(40)], room), [1, 5, 1]))
  it("is all rows that a writer waits for, drafts among them", () =>
    assertEquals(taken([{ tokens: 5, rows: 5, servedAt: 1 }, writer()], room), [5, 1]))
  it("is of those who wait longest, where there are more than fit", () =>
    assertEquals(taken([writer(3), writer(1), prompt(9, 2), writer(3)], { tokens: 2, chunk: 1 }), [0, 1, 1, 0]))
  it("is a turn of those who write, where a fuller step computes more in the same time", () => {
    const costs = [{ tokens: 4, micros: 4 }, { tokens: 8, micros: 7 }]
    const own = { tokens: 8, chunk: 6, costs }
    assertEquals(taken(Array.from({ length: 5 }, () => writer()), own), [1, 1, 1, 1, 0])
    assertEquals(taken(Array.from({ length: 8 }, () => writer()), own), Array.from({ length: 8 }, () => 1))
    // prompts fill what is left; alone, they take all of it
    assertEquals(taken([...Array.from({ length: 5 }, () => writer()), prompt(9)], own), [1, 1, 1, 1, 1, 3])
    assertEquals(taken([prompt(5)], own), [5])
  })
  it("never passes anyone over for good", () => {
    const waiting = Array.from({ length: 7 }, (_, i) => i % 3 === 0 ? prompt(1000) : writer())
    const served = waiting.map(() => 0)
    for (let step = 1; step <= 40; step++) {
      taken(waiting.map((each, i) => ({ ...each, servedAt: served[i]! })), { tokens: 3, chunk: 2 })
        .forEach((count, i) => {
          if (count > 0) served[i] = step
        })
    }
    assertEquals(served.every((at) => at > 36), true)
  })
})

describe("a long prompt", () => {
  const inBatches: Fair.Room = { ...room, batch: { from: 20, tokens: 64, beside: 32, most: 1, positions: 256 } }
  const choose = (waiting: ReadonlyArray<Fair.Waiting>, last: Fair.Kind) => Fair.choose(waiting, inBatches, last)

  it("takes whole batches where it is alone, but for a rest that is too small for one", () => {
    assertEquals(choose([prompt(90)], "batch"), { kind: "batch", taken: [64] })
    assertEquals(choose([prompt(26)], "batch"), { kind: "batch", taken: [26] })
    assertEquals(choose([prompt(100)], "batch"), { kind: "batch", taken: [64] })
    assertEquals(choose([prompt(36)], "batch"), { kind: "batch", taken: [32] })
    assertEquals(choose([prompt(4)], "batch"), { kind: "few", taken: [4] })
  })
  it("takes smaller ones in turns with those who write or ask little", () => {
    assertEquals(choose([writer(), prompt(100)], "few"), { kind: "batch", taken: [0, 32] })
    assertEquals(choose([writer(), prompt(100)], "batch"), { kind: "few", taken: [1, 0] })
    assertEquals(choose([prompt(19), prompt(100)], "batch"), { kind: "few", taken: [16, 0] })
  })
  it("waits for those that have waited longer", () =>
    assertEquals(choose([prompt(100, 3), prompt(100, 2)], "batch"), { kind: "batch", taken: [0, 64] }))
  it("leaves several rows that are wanted to a step of a few tokens", () =>
    assertEquals(choose([{ ...prompt(30), rows: 4 }], "few"), { kind: "batch", taken: [26] }))
  it("has the same rest, whoever waits beside it", () => {
    for (let tokens = 1; tokens < 300; tokens++) {
      const restOf = (others: ReadonlyArray<Fair.Waiting>): number => {
        let left = tokens
        for (;;) {
          const { kind, taken } = choose([prompt(left), ...others], "few")
          if (kind === "few") return left
          left -= taken[0]!
        }
      }
      assertEquals(restOf([writer()]), restOf([]))
    }
  })
  it("shares a batch with others that look at few positions, as far as it leaves their rest what it is", () => {
    const shared: Fair.Room = { ...room, batch: { from: 20, tokens: 96, beside: 32, most: 3, positions: 256 } }
    const taken = (waiting: ReadonlyArray<Fair.Waiting>) => Fair.choose(waiting, shared, "few").taken
    assertEquals(taken([prompt(30), prompt(40), prompt(28)]), [30, 32, 28])
    assertEquals(taken([prompt(30, 2), prompt(70), prompt(28, 2)]), [30, 64, 0])
    assertEquals(taken([prompt(70), prompt(60)]), [64, 32])
    assertEquals(taken([prompt(70), prompt(80)]), [64, 32])
    assertEquals(taken([prompt(24), prompt(24), prompt(24), prompt(24)]), [24, 24, 24, 0])
    assertEquals(taken([prompt(24), { ...prompt(24), behind: 130 }, prompt(24)]), [24, 24, 0])
    assertEquals(taken([prompt(24), { ...prompt(24), behind: 190 }, prompt(24)]), [24, 0, 24])
    assertEquals(taken([{ ...prompt(200), behind: 2000 }, prompt(24)]), [96, 0])
    assertEquals(taken([prompt(24), { ...prompt(24), isAlone: true }, prompt(24)]), [24, 0, 24])
    assertEquals(taken([{ ...prompt(24), isAlone: true }, prompt(24)]), [24, 0])
    // of those who write, one waits for a batch beside
    assertEquals(taken([writer(), prompt(28), prompt(28)]), [0, 28, 0])
  })
  it("has the same rest in a batch with others", () => {
    const shared: Fair.Room = { ...room, batch: { from: 20, tokens: 96, beside: 32, most: 3, positions: 4096 } }
    for (let tokens = 1; tokens < 300; tokens++) {
      const restOf = (others: ReadonlyArray<Fair.Waiting>): number => {
        let left = tokens
        for (let step = 2;; step++) {
          const { kind, taken } = Fair.choose([prompt(left, step), ...others], shared, "few")
          if (kind === "few") return left
          left -= taken[0]!
          if (left < 20) return left
        }
      }
      assertEquals(restOf([prompt(30, 1), prompt(20, 3)]), restOf([]))
    }
  })
  it("is an ordinary one where there are no batches", () =>
    assertEquals(Fair.choose([prompt(100)], room, "few"), { kind: "few", taken: [16] }))
})
