import * as Expr from "@tg/core-uop/Expr"
import * as Print from "@tg/core-uop/Print"
import { Arena } from "@tg/core-uop/UOp"
import { describe, expect, it } from "vitest"
import * as Sum from "../src/Sum.ts"
import { parser } from "./support/parse.ts"
import { generator, random } from "./support/random.ts"

const arena = new Arena()
const { parse } = parser(arena)
const sum = (text: string): Sum.Sum => Sum.of(parse(text))

describe("the ring of index expressions", () => {
  const { add, mul, one, sub, zero } = Sum.RingSum
  const { equals } = Sum.EqSum
  const values = (): ReadonlyArray<readonly [Sum.Sum, Sum.Sum, Sum.Sum]> =>
    Array.from({ length: 200 }, (_, seed) => {
      const g = generator(random(seed), arena)
      return [Sum.of(g.index(2)), Sum.of(g.index(2)), Sum.of(g.index(2))] as const
    })
  const law = (name: string, holds: (a: Sum.Sum, b: Sum.Sum, c: Sum.Sum) => boolean): void => {
    it(name, () => {
      for (const [a, b, c] of values()) {
        if (!holds(a, b, c)) {
          expect.fail([a, b, c].map((s) => Print.expression(Sum.toNode(s, arena))).join("; "))
        }
      }
    })
  }
  law("addition is associative", (a, b, c) => equals(add(add(a, b), c), add(a, add(b, c))))
  law("addition commutes", (a, b) => equals(add(a, b), add(b, a)))
  law("zero is neutral for addition", (a) => equals(add(a, zero), a) && equals(add(zero, a), a))
  law("subtraction inverts addition", (a, b) => equals(sub(add(a, b), b), a) && equals(sub(a, a), zero))
  law("multiplication is associative", (a, b, c) => equals(mul(mul(a, b), c), mul(a, mul(b, c))))
  law("multiplication commutes", (a, b) => equals(mul(a, b), mul(b, a)))
  law("one is neutral for multiplication", (a) => equals(mul(a, one), a) && equals(mul(one, a), a))
  law("multiplication distributes", (a, b, c) => equals(mul(a, add(b, c)), add(mul(a, b), mul(a, c))))
  law("zero annihilates", (a) => equals(mul(a, zero), zero))
  law("a node made of a sum has that sum", (a) => equals(Sum.of(Sum.toNode(a, arena)), a))
})

describe("Sum", () => {
  it("bounds terms", () => {
    expect(Sum.bounds(sum("a0 * 4 - b0 + 3"))).toEqual({ min: -4, max: 63 })
  })
  it("knows the largest value of symbolic loops", () => {
    expect(Sum.bounds(sum("n - s0")).min).toBeLessThan(1)
    expect(Sum.lowerBound(sum("n - s0"))).toBe(1)
    expect(Sum.lowerBound(sum("n * 8 - s0 * 8 - b0"))).toBe(1)
  })
  it("finds common divisors", () => {
    expect(Sum.gcd(12, 18)).toBe(6)
    expect(Sum.gcd()).toBe(0)
    expect(Sum.content(sum("a0 * 12 - b0 * 8 + 5"))).toBe(4)
  })
  it("takes deep sums apart without recursion", () => {
    let top = parse("v")
    for (let i = 0; i < 50_000; i++) top = Expr.add(top, 1)
    expect(Sum.of(top)).toEqual({ terms: [parse("v")], coefficients: [1], constant: 50_000 })
  })
})
