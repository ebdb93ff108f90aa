import * as Bounds from "@tg/core-uop/Bounds"
import * as Expr from "@tg/core-uop/Expr"
import * as Print from "@tg/core-uop/Print"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { describe, expect, it } from "vitest"
import * as Interval from "../src/Interval.ts"
import { assignments, evaluator, freeNodes } from "./support/evaluate.ts"
import { generator, random } from "./support/random.ts"

const arena = new Arena()
const loop = (size: number, id: number): UOp => Expr.range(arena, size, id, "GLOBAL")

describe("values of an index", () => {
  it("takes a quotient together with what it divides", () => {
    const t = loop(256, 0)
    // 32 (t mod 128) + 5 (t / 128), as it is written where remainders are differences
    const at = Expr.add(Expr.mul(t, 32), Expr.mul(Expr.floordiv(t, 128), 5 - 32 * 128))
    expect(Bounds.of(at)).toEqual({ min: -4091, max: 8160 })
    expect(Interval.of(at)).toEqual({ min: 0, max: 127 * 32 + 5 })
    const shifted = Expr.add(Expr.mul(t, 32), Expr.mul(Expr.shr(t, 7), 5 - 32 * 128))
    expect(Interval.of(shifted)).toEqual({ min: 0, max: 127 * 32 + 5 })
  })

  it("divides sums, too", () => {
    const [a, b] = [loop(4, 0), loop(8, 1)]
    const sum = Expr.add(Expr.mul(a, 8), b)
    const at = Expr.add(Expr.mul(sum, 10), Expr.mul(Expr.floordiv(sum, 16), -159))
    expect(Interval.of(at)).toEqual({ min: 0, max: 151 })
  })

  it("knows what the conditions around it say", () => {
    const g = loop(100, 0)
    const under = (conditions: ReadonlyArray<UOp>): unknown => Interval.of(Expr.mul(g, 4), Interval.factsOf(conditions))
    expect(under([Expr.lt(g, 10)])).toEqual({ min: 0, max: 36 })
    expect(under([Expr.not(Expr.lt(g, 10))])).toEqual({ min: 40, max: 396 })
    expect(under([Expr.and(Expr.lt(g, 20), Expr.lt(Expr.int(arena, 10), g))])).toEqual({ min: 44, max: 76 })
    expect(under([Expr.lt(Expr.add(Expr.mul(g, 3), 1), 30)])).toEqual({ min: 0, max: 36 })
    expect(under([Expr.alu("OR", Expr.lt(g, 10), Expr.lt(Expr.int(arena, 90), g))])).toEqual({ min: 0, max: 396 })
  })

  it("knows what they say of a sum", () => {
    const [g, part, t] = [loop(132, 2), loop(16, 3), loop(32, 4)]
    const row = Expr.add(g, Expr.mul(part, 132))
    const facts = Interval.factsOf([Expr.lt(Expr.add(row, 1), 2048)])
    expect(Interval.of(Expr.add(Expr.mul(row, 32), t)).max).toBe(132 * 16 * 32 - 1)
    expect(Interval.of(Expr.add(Expr.mul(row, 32), t), facts)).toEqual({ min: 0, max: 2046 * 32 + 31 })
    expect(Interval.of(Expr.shr(Expr.add(Expr.mul(row, 32), t), 2), facts).max).toBe((2046 * 32 + 31) >> 2)
    const own = Expr.max(Expr.sub(g, 64), 0)
    expect(Interval.of(own, Interval.factsOf([Expr.lt(g, 100)]))).toEqual({ min: 0, max: 35 })
  })

  it("forgets what a register said", () => {
    const register = arena.make("REG", loop(9, 5).dtype, [Expr.int(arena, 0)], { id: 0 })
    expect(Interval.factsOf([Expr.lt(register, 3)]).terms.size).toBe(0)
  })

  const rounds = 600
  it("holds for random expressions under random conditions, and is no wider than `Bounds`", () => {
    let narrower = 0
    for (let seed = 0; seed < rounds; seed++) {
      const g = generator(random(seed), new Arena())
      const conditions = [g.conjunction(2)]
      const at = g.index(4)
      const { max, min } = Interval.of(at, Interval.factsOf(conditions))
      const whole = Bounds.of(at)
      expect(min >= whole.min && max <= whole.max || min > max, `${seed}: ${Print.expression(at)}`).toBe(true)
      if (max - min < whole.max - whole.min) narrower++
      const [holds, value] = [evaluator(conditions[0]!), evaluator(at)]
      for (const free of assignments(freeNodes(Expr.where(conditions[0]!, at, at)), 3000)) {
        const found = value(free)
        if (holds(free) === 0 || Number.isNaN(found)) continue
        if (found >= min && found <= max) continue
        expect.fail(
          `${seed}: ${Print.expression(at)} under ${Print.expression(conditions[0]!)} is ${found} ` +
            `at ${JSON.stringify(free)}, not in ${min} .. ${max}`
        )
      }
    }
    expect(narrower).toBeGreaterThan(rounds / 50)
  })
})
