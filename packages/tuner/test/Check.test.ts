import { assert, describe, it } from "@effect/vitest"
import * as Check from "../src/Check.ts"
import * as Kernels from "./support/kernels.ts"

const floats = (...values: ReadonlyArray<number>): Check.Output => ({
  scalar: "f32",
  words: new Uint32Array(Float32Array.from(values).buffer)
})
const words = (...values: ReadonlyArray<number>): Check.Output => ({ scalar: "u32", words: Uint32Array.from(values) })
const exact = { relative: 2 ** -20, packsHalves: false, quantises: false }
const tolerance = [exact, exact]

describe("difference", () => {
  it("is none within the tolerance, of the largest number", () => {
    assert.isUndefined(Check.difference([floats(1000, 1)], [floats(1000, 1 + 2 ** -11)], tolerance))
    assert.isUndefined(Check.difference([floats(NaN, 0, Infinity)], [floats(NaN, -0, Infinity)], tolerance))
  })

  it("names the place", () => {
    assert.match(
      Check.difference([floats(1, 2), floats(3)], [floats(1, 2), floats(3.5)], tolerance)!,
      /^output 1\[0\] is 3.5 instead of 3/
    )
    assert.match(Check.difference([floats(1)], [floats(NaN)], tolerance)!, /NaN instead of 1/)
  })

  it("takes integers as they are, packed halves within their last bit", () => {
    const [a, b] = [[words(0x3c00_0001, 7)], [words(0x3c01_8001, 7)]]
    assert.match(Check.difference(a, b, tolerance)!, /instead of/)
    const near = [words(0x3c01_0000, 7)]
    assert.isUndefined(Check.difference(a, near, [{ ...exact, packsHalves: true }]))
    assert.match(Check.difference(a, b, [{ ...exact, packsHalves: true }])!, /instead of/)
  })

  it("takes quantised values that were rounded the other way, and scales within the tolerance", () => {
    const quantised = [{ ...exact, quantises: true }]
    const quants = [words(0x7f_00_ff_01)]
    assert.isUndefined(Check.difference(quants, [words(0x7e_01_00_00)], quantised))
    assert.match(Check.difference(quants, [words(0x7f_00_ff_03)], tolerance)!, /instead of/)
    assert.match(Check.difference(quants, [words(0x7d_00_ff_01)], quantised)!, /instead of/)
    const scale = floats(0.1)
    const other = { scalar: "u32", words: Uint32Array.of(scale.words[0]! + 8) } as const
    assert.isUndefined(Check.difference([{ ...scale, scalar: "u32" }], [other], quantised))
    assert.match(Check.difference([words(0x3dcc_cccd)], [words(0x3dcd_d000)], quantised)!, /instead of/)
  })

  it("allows more for longer sums", () => {
    const of = (columns: number) => Check.toleranceOf(Kernels.product(4, columns)).relative
    assert.isAbove(of(1024), of(16))
    assert.isBelow(of(16384), 0.01)
  })
})

describe("tolerancesOf", () => {
  it("has for each output what its own member allows", () => {
    const short = Check.toleranceOf(Kernels.product(4, 16))
    assert.deepStrictEqual(Check.tolerancesOf(Kernels.product(4, 16)), [short])
    assert.deepStrictEqual(Check.tolerancesOf(Kernels.products([4, 8], 16)), [short, short])
  })
})

describe("isTelling", () => {
  it("is not so when most numbers are none", () => {
    assert.isTrue(Check.isTelling([floats(1, 2, NaN), words(0)]))
    assert.isFalse(Check.isTelling([floats(1, Infinity, NaN)]))
  })
})
