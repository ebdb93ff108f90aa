/** Halves as floats: every half, in the form for conversions that are many and in the form for those that are few. */
import * as DType from "@tg/core-uop/DType"
import { halfToFloat } from "@tg/core-uop/EvaluateOps"
import * as Expr from "@tg/core-uop/Expr"
import type { UOp } from "@tg/core-uop/UOp"
import { assert, describe, it } from "@effect/vitest"
import { map, text } from "./support/elements.ts"
import { execute } from "./support/execute.ts"

const count = 65536
const halves = Uint32Array.from({ length: count }, (_, i) => i)
const wanted = Uint32Array.from(new Uint32Array(Float32Array.from(halves, halfToFloat).buffer))
const bits = (x: UOp): UOp => Expr.bitcast(Expr.alu("HALF_TO_FLOAT", x), DType.u32)
const product = "f32x4.mul"
const minimum = "f32x4.pmin"

/** The words that a half is read from, and where in them it is. */
const places: Record<string, [(half: number) => number, (word: UOp) => UOp]> = {
  "the lower half of a word": [(h) => (h ^ 0x5a5a) << 16 | h, (w) => Expr.and(w, 0xffff)],
  "the upper half of a word": [(h) => h << 16 | (h ^ 0x5a5a), (w) => Expr.shr(w, 16)],
  "a word of its own": [(h) => h, (w) => w]
}

/** What a conversion is few among: the result does not depend on it. */
const others = (x: UOp): UOp =>
  Array.from({ length: 120 }, (_, i) => i).reduce((y, i) => i % 2 === 0 ? Expr.xor(y, i) : Expr.add(y, i), x)

const differing = (got: Uint32Array): ReadonlyArray<string> =>
  [...wanted].flatMap((w, i) => {
    // which NaN it is does not matter
    const isNaN = (i & 0x7c00) === 0x7c00 && (i & 0x3ff) !== 0
    const same = isNaN ? (got[i]! & 0x7f800000) === 0x7f800000 && (got[i]! & 0x7fffff) !== 0 : got[i] === w
    return same ? [] : [`${i}: ${got[i]} instead of ${w}`]
  })

describe.each([1, 4] as const)("%i lanes", (lanes) => {
  it.each(Object.entries(places))("converts every half of %s", (_, [word, place]) => {
    const kernel = map(lanes, count, [DType.u32], DType.u32, (w) => bits(place(w)))
    assert.include(text(kernel), product)
    assert.notInclude(text(kernel), minimum)
    const [got] = execute(kernel, [new Uint32Array(count), halves.map(word)])
    assert.deepStrictEqual(differing(got), [])
  })

  it.each(Object.entries(places))("converts every half of %s without a subnormal operand among others", (_, [
    word,
    place
  ]) => {
    const kernel = map(
      lanes,
      count,
      [DType.u32, DType.u32],
      DType.u32,
      (w, zero) => Expr.or(bits(place(w)), Expr.and(others(zero), 0))
    )
    assert.include(text(kernel), minimum)
    assert.notInclude(text(kernel), product)
    const [got] = execute(kernel, [new Uint32Array(count), halves.map(word), new Uint32Array(count)])
    assert.deepStrictEqual(differing(got), [])
  })
})
