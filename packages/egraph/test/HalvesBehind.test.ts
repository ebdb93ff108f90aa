import { toposort } from "@tg/core-uop/UOp"
import { made } from "@tg/egraph/MatrixPieces"
import { ofProgram } from "@tg/egraph/MatrixSplit"
import type { Choose } from "@tg/egraph/Split"
import { cheapest } from "@tg/egraph/SplitCost"
import { inChunks } from "@tg/egraph/Stored"
import { describe, expect, it } from "vitest"
import { latent, matrix, type Sizes, valuesOf } from "./support/latent.ts"

const heads = 20
const inPieces: Choose = (site, profile) => ({
  ...cheapest(site, profile),
  plan: { piece: 64, together: [{ axis: 1, size: heads }] },
  inPieces: made
})

const chunk = 320
const stored: Choose = (site, profile, cascade) => ({
  ...cheapest(site, profile),
  plan: { piece: chunk },
  stored: inChunks(cascade, { chunk, parts: 4 })
})

const rms = (x: ReadonlyArray<number>): number => Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / x.length)

/** How far a program's values are from those as it was written, in parts of their root mean square. */
const apartBehind = (sizes: Sizes, choose: Choose): (start: number) => number => {
  const written = latent({ ...sizes, context: 2112 })
  const { sink } = ofProgram(written.sink, matrix, choose)
  expect(toposort(sink).filter(({ op }) => op === "FLOAT_TO_HALF")).toHaveLength(3)
  return (start) => {
    const expected = valuesOf(written, written.sink, start)
    const found = valuesOf(written, sink, start)
    return rms(expected.map((x, i) => x - found[i]!)) / rms(expected)
  }
}

/**
 * An operand is off by 2^-11 of itself at most, by 2^-12.4 as root mean square: of scores of some 48 terms, and of weights of a sum, most of it
 * cancels out. Weights that lost their smallest values, or that were rounded to a part of the largest one, would leave more behind more positions.
 */
const bound = 2 ** -12

describe("what rounding to halves leaves does not grow with the positions", () => {
  const forms: ReadonlyArray<readonly [string, Sizes, Choose]> = [
    ["of one token, in pieces", { tokens: 1, heads }, inPieces],
    ["of a few, with stored scores", { tokens: 4 }, stored],
    ["of a batch, whose weights are divided by their sum", { tokens: 4, isBatch: true }, stored]
  ]
  for (const [name, sizes, choose] of forms) {
    it(name, () => {
      const apart = apartBehind(sizes, choose)
      const [near, far] = [apart(60), apart(2000)]
      expect(near).toBeLessThanOrEqual(bound)
      expect(far).toBeLessThanOrEqual(near)
    })
  }
})
