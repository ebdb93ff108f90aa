import * as Bounds from "@tg/core-uop/Bounds"
import * as Expr from "@tg/core-uop/Expr"
import * as Print from "@tg/core-uop/Print"
import { Arena, transfer, type UOp } from "@tg/core-uop/UOp"
import { describe, expect, it } from "vitest"
import * as Symbolic from "../src/Symbolic.ts"
import { assignments, evaluator, freeNodes } from "./support/evaluate.ts"
import { generator, type Random, random } from "./support/random.ts"

const rounds = Number(globalThis.process?.env["FUZZ"] ?? 1000)

const check = (before: UOp, after: UOp, seed: string): void => {
  const all = assignments(freeNodes(before), 3000)
  const range = Bounds.of(before)
  const tight = Bounds.of(after)
  const [valueBefore, valueAfter] = [evaluator(before), evaluator(after)]
  for (const at of all) {
    const expected = valueBefore(at)
    const actual = valueAfter(at)
    if (Number.isNaN(expected)) continue
    if (
      expected !== actual || expected < range.min || expected > range.max || actual < tight.min || actual > tight.max
    ) {
      expect.fail(
        `${seed}: ${Print.expression(before)}\n became ${Print.expression(after)}\n at ${JSON.stringify(at)}: ` +
          `${expected} in [${range.min}, ${range.max}] became ${actual} in [${tight.min}, ${tight.max}]`
      )
    }
  }
}

const run = (kind: string, make: (r: Random, arena: Arena) => UOp, count = rounds) => {
  it(`${kind}: same values, within bounds, idempotent`, () => {
    const problems: Array<string> = []
    for (let seed = 0; seed < count; seed++) {
      const before = make(random(seed), new Arena())
      const after = Symbolic.simplify(before)
      check(before, after, `${kind} ${seed}`)
      const again = Symbolic.simplify(transfer(after, new Arena()))
      if (Print.expression(again) !== Print.expression(after)) {
        problems.push(
          `${seed}: ${Print.expression(before)}\n  ${Print.expression(after)}\n  ${Print.expression(again)}`
        )
      }
    }
    expect(problems).toEqual([])
  })
}

describe("random expressions", () => {
  run("index", (r, arena) => generator(r, arena).index(4))
  run("deep index", (r, arena) => generator(r, arena).index(6), rounds / 3)
  run("condition", (r, arena) => generator(r, arena).bool(4))
  run("i32", (r, arena) => generator(r, arena).machine("i32", 4))
  run("u32", (r, arena) => generator(r, arena).machine("u32", 4))

  it("simplifies under conditions", () => {
    for (let seed = 0; seed < rounds; seed++) {
      const g = generator(random(seed), new Arena())
      const condition = g.conjunction(2)
      const before = g.index(4)
      const after = Symbolic.simplifyUnder(condition, before)
      const [holds, valueBefore, valueAfter] = [evaluator(condition), evaluator(before), evaluator(after)]
      for (const at of assignments(freeNodes(Expr.where(condition, before, before)), 3000)) {
        if (holds(at) === 0) continue
        const expected = valueBefore(at)
        const actual = valueAfter(at)
        if (expected !== actual && !Number.isNaN(expected)) {
          expect.fail(
            `${seed}: ${Print.expression(before)} under ${Print.expression(condition)}\n became ` +
              `${Print.expression(after)}\n at ${JSON.stringify(at)}: ${expected} became ${actual}`
          )
        }
      }
    }
  })
})
