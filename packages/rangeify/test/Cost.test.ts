import { assert, describe, it } from "@effect/vitest"
import type { Eq } from "fp-ts/Eq"
import type { Semiring } from "fp-ts/Semiring"
import { brokenLaws, chain, cheapest, chosen, Cost, times } from "../src/Cost.ts"

const same: Eq<number> = { equals: Object.is }
// integers, so that sums are exact
const values = [0, 1, 2, 7, 4096, 2 ** 40, Infinity]

describe("Cost", () => {
  it("is a semiring", () => assert.deepStrictEqual(brokenLaws(Cost, same, values), []))

  it("has a law suite that notices what is not one", () => {
    const broken = brokenLaws({ ...Cost, mul: (a, b) => a - b }, same, [1, 2])
    assert.deepStrictEqual(broken.map((law) => law.split(":")[0]), [
      "mul is associative",
      "one is neutral for mul",
      "zero annihilates",
      "mul distributes over add"
    ])
  })

  it("chains what is done one after the other, and powers what is repeated", () => {
    assert.strictEqual(chain([]), Cost.one)
    assert.strictEqual(chain([1, 2, 3]), 6)
    assert.strictEqual(times(5, 3), chain([5, 5, 5]))
    assert.strictEqual(times(Infinity, 0), Cost.one)
  })

  it("chooses all of the cheapest, in order", () => {
    assert.deepStrictEqual(cheapest(["ccc", "a", "bb", "d"], (s) => s.length), ["a", "d"])
    assert.deepStrictEqual(cheapest([], () => 0), [])
    assert.deepStrictEqual(cheapest([Infinity, Infinity], (cost) => cost), [Infinity, Infinity])
  })

  it("chooses by any semiring whose sum is one of its terms: the widest path", () => {
    const Width: Semiring<number> = {
      zero: 0,
      one: Infinity,
      add: (a, b) => Math.max(a, b),
      mul: (a, b) => Math.min(a, b)
    }
    assert.deepStrictEqual(brokenLaws(Width, same, values), [])
    assert.deepStrictEqual(chosen(Width, same)(["bb", "a", "cc"], (s) => s.length), ["bb", "cc"])
  })
})
