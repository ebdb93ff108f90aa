import { h200 } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, reduceArg, toposort, type UOp } from "@tg/core-uop/UOp"
import { cascadeAt } from "@tg/egraph/Cascade"
import { ofProgram } from "@tg/egraph/MatrixSplit"
import { law } from "@tg/egraph/Pieces"
import type { Choose } from "@tg/egraph/Split"
import { cheapest } from "@tg/egraph/SplitCost"
import { inChunks, storableAt } from "@tg/egraph/Stored"
import * as Nn from "@tg/tensor/Nn"
import { buffer } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { apartBehind, contents, latent, matrix, ofHalves, type Sizes } from "./support/latent.ts"
import { difference } from "./support/programs.ts"

/** Chunks of so many positions, whatever they take. */
const take = (chunk: number, parts = 4): Choose => (site, profile, cascade) => {
  const stored = inChunks(cascade, { chunk, parts })
  return stored === undefined
    ? cheapest(site, profile)
    : { stored, plan: { piece: chunk }, micros: 1, wholeMicros: 2 }
}

describe("a cascade with stored scores, summed in chunks", () => {
  // one page, a chunk that is not full, whole chunks, and all that there is room for
  const starts = [0, 61, 252, 300, 572]

  it("keeps its values exactly up to the order of sums, if nothing is rounded", () => {
    const made = latent()
    for (const [chunk, parts] of [[64, 4], [256, 3], [512, 2], [640, 1]] as const) {
      const stored = inChunks(cascadeAt(made.mix)!, { chunk, parts })!
      expect(Shape.print(Shape.of(stored))).toBe(Shape.print(Shape.of(made.mix)))
      for (const start of starts) {
        const [a, b] = evaluate([made.mix, stored], { buffers: contents(made.leaves), vars: { start } })
          .map((value) => Array.from(value!.data))
        expect(difference(a!, b!), `chunks of ${chunk} behind ${start}`).toBeLessThanOrEqual(law.bound)
      }
    }
  })

  it("with operands as halves, in a program", () => {
    const made = latent()
    for (const [chunk, parts] of [[256, 4], [512, 2]] as const) {
      const { reports, sink } = ofProgram(made.sink, matrix, take(chunk, parts))
      expect(reports).toMatchObject([{ label: "attn_mix", piece: chunk, isStored: true, steps: 3 }])
      expect(Spec.check("tensor", sink)).toEqual([])
      for (const start of starts) {
        const apart = apartBehind(made, sink, start)
        expect(apart).toBeGreaterThan(0)
        expect(apart, `behind ${start}`).toBeLessThanOrEqual(ofHalves)
      }
    }
  })

  it("wherever the scale is written", () => {
    for (const scaled of ["scores", "keys", "query"] as const) {
      const made = latent({ scaled })
      const { reports, sink } = ofProgram(made.sink, matrix, take(512))
      expect(reports).toMatchObject([{ label: "attn_mix", isStored: true }])
      expect(apartBehind(made, sink, 300), scaled).toBeLessThanOrEqual(ofHalves)
    }
  })

  it("one product for scores, one for the mix, and what is found of each row as one record", () => {
    const { sink } = ofProgram(latent().sink, matrix, take(512))
    const nodes = toposort(sink)
    const moves = ({ op }: UOp): boolean => movement.has(op) || op === "GATHER"
    const isHalf = (node: UOp): boolean => node.op === "HALF_TO_FLOAT" || moves(node) && isHalf(node.src[0]!)
    const products = nodes.filter((node) =>
      node.op === "REDUCE" && node.src[0]!.op === "MUL" && node.src[0]!.src.every(isHalf)
    )
    expect(products.map((node) => reduceArg(node).axes.length)).toEqual([1, 1])
    // query, its halves, scores, maximum and sum of chunks, those of rows that all are moved by, sums of parts of chunks
    expect(nodes.filter(({ op }) => op === "CONTIGUOUS")).toHaveLength(6)
  })
})

it("rounds products of batches, whose scores and weights are stored anyway", () => {
  const made = latent({ isBatch: true })
  const { reports, sink } = ofProgram(made.sink, matrix, take(512))
  expect(reports.filter(({ width }) => width > 1)).toEqual([])
  expect(toposort(sink).filter(({ op }) => op === "FLOAT_TO_HALF")).toHaveLength(3)
  for (const start of [0, 300]) {
    expect(apartBehind(made, sink, start)).toBeLessThanOrEqual(ofHalves)
  }
})

describe("what matrix units do not gain by stays as it is", () => {
  const isRounded = (sizes: Sizes, profile = matrix): boolean =>
    toposort(ofProgram(latent(sizes).sink, profile, take(512)).sink).some(({ op, src }) =>
      op === "HALF_TO_FLOAT" && src[0]!.op === "FLOAT_TO_HALF"
    )

  it("rounds where the program rounds, the cache has halves, and the device has matrix units", () => {
    expect(isRounded({})).toBe(true)
    expect(isRounded({}, h200)).toBe(false)
    expect(isRounded({ activations: "float" })).toBe(false)
    expect(isRounded({ cache: "f32" })).toBe(false)
  })

  it("one token, however many its heads are, and rows that are no whole tiles", () => {
    expect(isRounded({ tokens: 1, heads: 16 })).toBe(false)
    expect(isRounded({ tokens: 2, heads: 4 })).toBe(false)
    expect(isRounded({ tokens: 2, heads: 8 })).toBe(true)
    const { sink } = latent({ tokens: 1, heads: 16 })
    expect(ofProgram(sink, matrix).sink).toBe(ofProgram(sink, h200).sink)
  })

  it("other positions than whole pages", () => {
    const arena = new Arena()
    const x = buffer(arena, 0, { shape: [16, 60], dtype: DType.f32 })
    const v = buffer(arena, 1, { shape: [60, 2], dtype: DType.f32 })
    const mix = Nn.softmax(x).unsqueeze(-1).mul(v).sum(-2)
    expect(storableAt(cascadeAt(mix.node)!)).toBeUndefined()
  })
})
