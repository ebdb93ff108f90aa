import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import * as Spec from "@tg/core-uop/Spec"
import { reduceArg, toposort, type UOp } from "@tg/core-uop/UOp"
import { cascadeAt } from "@tg/egraph/Cascade"
import { made, waysOf } from "@tg/egraph/MatrixPieces"
import { ofProgram } from "@tg/egraph/MatrixSplit"
import { inPieces, law } from "@tg/egraph/Pieces"
import { cheapest, siteOf } from "@tg/egraph/SplitCost"
import { pagesIn } from "@tg/egraph/Stored"
import { describe, expect, it } from "vitest"
import { apartBehind, contents, latent, matrix, ofHalves, type Sizes } from "./support/latent.ts"
import { difference } from "./support/programs.ts"

/** One token's heads, which are no whole fragments. */
const sizes: Sizes = { tokens: 1, heads: 20, context: 640 }
const together = [{ axis: 1, size: 20 }]

/** One page, a piece that is not full, whole pieces, an odd page at the end, and all that there is room for. */
const starts = [0, 61, 127, 130, 320, 639]

describe("a cascade in pieces on matrix units", () => {
  it("keeps its values exactly up to the order of sums, if nothing is rounded", () => {
    const program = latent(sizes)
    for (const piece of [64, 128, 256]) {
      const cascade = cascadeAt(program.mix)!
      const split = inPieces(cascade, { piece, together }, pagesIn(cascade.size, piece))!
      expect(Shape.print(Shape.of(split))).toBe(Shape.print(Shape.of(program.mix)))
      for (const start of starts) {
        const [a, b] = evaluate([program.mix, split], { buffers: contents(program.leaves), vars: { start } })
          .map((value) => Array.from(value!.data))
        expect(difference(a!, b!), `pieces of ${piece} behind ${start}`).toBeLessThanOrEqual(law.bound)
      }
    }
  })

  it.each([1, 3])("with both operands of its products as halves, in a program of %i tokens", (tokens) => {
    const program = latent({ ...sizes, tokens })
    for (const piece of [64, 128]) {
      const { reports, sink } = ofProgram(program.sink, matrix, (site, profile) => ({
        ...cheapest(site, profile),
        plan: { piece, together },
        inPieces: made
      }))
      expect(reports).toMatchObject([{ label: "attn_mix", piece, isStored: false, together: 20 }])
      expect(Spec.check("tensor", sink)).toEqual([])
      // the query, and the weights of a piece
      const rounded = toposort(sink).filter(({ op, src }) => op === "HALF_TO_FLOAT" && src[0]!.op === "FLOAT_TO_HALF")
      expect(rounded).toHaveLength(2)
      for (const start of starts.filter((start) => start + tokens <= 640)) {
        const apart = apartBehind(program, sink, start)
        // one position has the weight 1, which is a half
        if (start > 0) expect(apart, `behind ${start}`).toBeGreaterThan(0)
        expect(apart, `behind ${start}`).toBeLessThanOrEqual(ofHalves)
      }
    }
  })

  it("weights of what is behind the axis are zero as operands, so that sums stay products", () => {
    const split = made(cascadeAt(latent(sizes).mix)!, { piece: 128, together })!
    const sums = toposort(split).filter((node) => node.op === "REDUCE" && reduceArg(node).op === "ADD")
    const isHalf = (node: UOp): boolean =>
      node.op === "HALF_TO_FLOAT" || (movement.has(node.op) || node.op === "GATHER") && isHalf(node.src[0]!)
    const products = sums.filter(({ src: [terms] }) => terms!.op === "MUL" && terms!.src.every(isHalf))
    expect(products).toHaveLength(2)
  })
})

describe("what pieces on matrix units take", () => {
  const waysFor = (own: Sizes, profile = matrix) => {
    const cascade = cascadeAt(latent({ ...sizes, ...own }).mix)!
    return waysOf(siteOf(cascade), profile, cascade)
  }

  it("grows with the waves of workgroups", () => {
    const [large, small] = waysFor({})
    expect([large!.plan.piece, small!.plan.piece]).toEqual([128, 64])
    // one wave, two, three of 132 processors
    const waves = [132, 264, 396].map((count) => small!.behind(64 * count))
    expect(waves[1]! - waves[0]!).toBeCloseTo(waves[2]! - waves[1]!)
    expect(large!.behind(64 * 264)).toBeLessThan(small!.behind(64 * 264))
    expect(large!.behind(64)).toBeGreaterThan(small!.behind(64))
  })

  it("decides by the positions that there are", () => {
    const rangeOf = (own: Sizes) => {
      const { least, positions } = siteOf(cascadeAt(latent({ ...sizes, ...own }).mix)!)
      return [least, positions]
    }
    expect(rangeOf({ context: 16384 })).toEqual([64, 4096])
    expect(rangeOf({ context: 16384, behind: 8192 })).toEqual([8256, 8192 + 2048])
    const pieceOf = (own: Sizes): number | undefined =>
      ofProgram(latent({ ...sizes, ...own }).sink, matrix).reports[0]!.piece
    expect([pieceOf({ context: 16384 }), pieceOf({ context: 16384, behind: 8192 })]).toEqual([64, 128])
  })

  it("has the rows of all tokens together where there are accumulators for them, else those of each", () => {
    const ofTokens = (tokens: number, heads: number) => waysFor({ tokens, heads, context: 4096 })[0]?.plan.together
    expect(ofTokens(2, 16)).toEqual([{ axis: 0, size: 2 }, { axis: 1, size: 16 }])
    expect(ofTokens(2, 20)).toEqual([{ axis: 1, size: 20 }])
    expect(ofTokens(8, 20)).toEqual([{ axis: 1, size: 20 }])
    // one after the other, as each has the processor for itself
    const behind = (tokens: number): number => waysFor({ tokens, context: 4096 })[0]!.behind(128 * 132)
    expect(behind(4) - behind(2)).toBeCloseTo(2 * (behind(2) - behind(1)))
  })

  it("none where few rows share the cache, it has floats, or there is no memory for the tiles", () => {
    expect(waysFor({ heads: 4 })).toEqual([])
    expect(waysFor({ heads: 64 })).toEqual([])
    expect(waysFor({ cache: "f32" })).toEqual([])
    expect(waysFor({}, { ...matrix, maxWorkgroupBytes: 16384 })).toEqual([])
  })
})
