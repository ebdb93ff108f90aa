import { assert, describe, it } from "@effect/vitest"
import type { BoundedJoinSemilattice } from "fp-ts/BoundedJoinSemilattice"
import { EqRange, Lattice } from "../src/Bounds.ts"
import { fixpoint, reach, Reached } from "../src/Fixpoint.ts"

describe("fixpoint", () => {
  it("joins what is said of one key", () => {
    const lives = fixpoint(Lattice, EqRange)([["a", { min: 3, max: 3 }], ["b", { min: 1, max: 1 }], [
      "a",
      { min: 7, max: 7 }
    ]])
    assert.deepStrictEqual([...lives], [["a", { min: 3, max: 7 }], ["b", { min: 1, max: 1 }]])
  })

  it("passes on what has grown, around a cycle, until nothing grows", () => {
    const Longest: BoundedJoinSemilattice<number> = { zero: 0, join: (a, b) => Math.max(a, b) }
    const edges: Readonly<Record<string, ReadonlyArray<string>>> = { a: ["b"], b: ["c"], c: ["a"] }
    // as far as 10 around the cycle
    const found = fixpoint(Longest, { equals: Object.is })(
      [["a", 1]],
      (key, value) => edges[key]!.map((next) => [next, Math.min(10, value + 1)] as const)
    )
    assert.deepStrictEqual(Object.fromEntries(found), { a: 10, b: 10, c: 10 })
  })

  it("says nothing of what is not reached", () => {
    const edges = new Map([[1, [2, 3]], [2, [4]], [3, [4]], [4, [1]], [5, [1]]])
    assert.deepStrictEqual([...reach([1], (key) => edges.get(key) ?? [])], [1, 2, 3, 4])
    assert.isFalse(fixpoint(Reached, { equals: Object.is })([["x", false]]).has("x"))
  })
})
