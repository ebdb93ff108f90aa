import { describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Placement from "../src/Placement.ts"

const count = (n: number, from = 0) => Array.from({ length: n }, (_, i) => from + i)
const kept = (tokens: ReadonlyArray<number>, usedAt: number, isBusy = false): Placement.Kept => ({
  tokens,
  usedAt,
  isBusy
})
const place = (kept: ReadonlyArray<Placement.Kept>, prompt: ReadonlyArray<number>, canOpen = false) =>
  Placement.place(kept, prompt, { canOpen })

describe("placement", () => {
  it("goes on where the longest prefix is", () =>
    assertEquals(place([kept(count(50), 1), kept(count(70), 2), kept(count(90, 7), 0)], count(100), true), {
      kind: "stay",
      place: 1
    }))
  it("of equal prefixes takes the least recently used", () =>
    assertEquals(place([kept(count(50), 3), kept(count(50), 2)], count(60)), { kind: "stay", place: 1 }))
  it("of equal prefixes takes an idle one", () =>
    assertEquals(place([kept(count(50), 1, true), kept(count(50), 2)], count(60)), { kind: "stay", place: 1 }))
  it("takes a free place if it shares little", () => {
    assertEquals(place([kept(count(50), 1), kept([], 2)], [...count(7), ...count(50, 900)]), {
      kind: "fresh",
      place: 1
    })
    assertEquals(place([kept(count(50), 1)], count(50, 900), true), { kind: "fresh", place: "another" })
  })
  it("takes the least recently used if it shares little and nothing is free", () =>
    assertEquals(place([kept(count(50), 3), kept(count(50), 1, true), kept(count(50), 2)], count(50, 900)), {
      kind: "fresh",
      place: 2
    }))
  it("copies a shared beginning rather than destroying a long tail, while there is room", () => {
    const other = [...count(40), ...count(200, 500)]
    assertEquals(place([kept(other, 1)], count(60), true), { kind: "branch", from: 0, place: "another" })
    assertEquals(place([kept(other, 2), kept(count(99, 3000), 1)], count(60)), { kind: "branch", from: 0, place: 1 })
    // half of it is shared, and the place of the copy would be another conversation's
    assertEquals(place([kept([...count(200), ...count(70, 500)], 2), kept(count(99, 3000), 1)], count(260)), {
      kind: "stay",
      place: 0
    })
  })
  it("copies from a conversation that is busy", () =>
    assertEquals(place([kept(count(80), 1, true), kept(count(9), 0)], count(90)), {
      kind: "branch",
      from: 0,
      place: 1
    }))
  it("destroys the tail if there is no other place", () =>
    assertEquals(place([kept([...count(40), ...count(200, 500)], 1)], count(60)), { kind: "stay", place: 0 }))
  it("has no place where all are busy", () => assertEquals(place([kept(count(80), 1, true)], count(90)), undefined))
})
