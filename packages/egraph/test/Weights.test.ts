import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as DType from "@tg/core-uop/DType"
import { h200 } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import { ofProgram } from "@tg/egraph/MatrixSplit"
import * as Program from "@tg/tensor/Program"
import { buffer, iota, type Tensor } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { areHalves, matrix } from "./support/latent.ts"
import { difference } from "./support/programs.ts"

const [heads, columns, blocks] = [2, 4, 2]
const terms = 32 * blocks

interface Sizes {
  readonly tokens?: number
  readonly weights?: "packed" | "floats"
  /** Whether each token has rows of its own, as those of chosen experts are. */
  readonly isChosen?: boolean
  /** Whether the result stands beside other values. */
  readonly isBeside?: boolean
  /** Whether what is multiplied is another product. */
  readonly isComputed?: boolean
}

/** A product of tokens with a matrix of each head, in a program that rounds something else to bytes. */
const sample = (sizes: Sizes = {}) => {
  const { isBeside, isChosen, isComputed, tokens = 16, weights = "packed" } = sizes
  const arena = new Arena()
  const leaf = (id: number, shape: ReadonlyArray<number>, dtype = DType.f32) => buffer(arena, id, { shape, dtype })
  const given = leaf(0, [tokens, heads, terms])
  const x = isComputed === true ? given.unsqueeze(-1).mul(leaf(6, [terms, terms])).sum(2) : given
  const lead = isChosen === true ? [4, heads, columns, blocks] : [heads, columns, blocks]
  const words = leaf(1, [...lead, 32], DType.u32)
  const packed = words.and(255).cast(DType.i32).sub(128).cast(DType.f32).mul(1 / 64)
  const rows = weights === "packed" ? packed : words.bitcast(DType.f32)
  const matrices = isChosen === true ? rows.gather(iota(arena, tokens).mod(4)) : rows
  const product = x.reshape([tokens, heads, 1, blocks, 32]).mul(matrices).sum({ axis: [-2, -1] }).label("product")
  const beside = leaf(2, [tokens, heads, columns])
  const both = isBeside === true ? beside.pad(behind(0, columns)).add(product.pad(behind(columns, 0))) : product
  const out = leaf(3, both.shape.map(Number))
  const bytes = leaf(4, [4], DType.u32)
  const dot = leaf(5, [4], DType.i32)
  const { sink } = Program.make([Program.assign(out, both), Program.assign(dot, bytes.dot4I8(bytes))])
  return { sink, out, leaves: [given, words, beside, out, bytes, dot, leaf(6, [terms, terms])] }
}

/** Room in front of the last of three axes, and behind it. */
const behind = (lo: number, hi: number): ReadonlyArray<readonly [number, number]> => [[0, 0], [0, 0], [lo, hi]]

const contents = (leaves: ReadonlyArray<Tensor>): ReadonlyMap<UOp, Float32Array | Uint32Array | Int32Array> =>
  new Map(leaves.map(({ dtype, node, shape }, leaf) => {
    const values = Array.from({ length: Shape.maxElements(shape) }, (_, i) => Math.sin(i * 0.37 + leaf))
    return [
      node,
      dtype === DType.f32
        ? Float32Array.from(values)
        : dtype === DType.u32
        ? Uint32Array.from(values, (x) => 128 + Math.round(100 * x))
        : Int32Array.from(values)
    ]
  }))

const valuesOf = ({ leaves, out }: ReturnType<typeof sample>, sink: UOp): ReadonlyArray<number> => {
  const buffers = contents(leaves)
  evaluate([sink], { buffers })
  return Array.from(buffers.get(out.node)!)
}

const isRounded = (sizes: Sizes, profile = matrix): boolean => areHalves(ofProgram(sample(sizes).sink, profile).sink)

describe("products of tokens with packed weights, on matrix units", () => {
  it("have both operands as halves", () => {
    for (const sizes of [{}, { tokens: 32 }, { isBeside: true }, { isComputed: true }]) {
      const made = sample(sizes)
      const { sink } = ofProgram(made.sink, matrix)
      expect(areHalves(sink)).toBe(true)
      expect(Spec.check("tensor", sink)).toEqual([])
      const apart = difference(valuesOf(made, made.sink), valuesOf(made, sink))
      expect(apart).toBeGreaterThan(0)
      // weights are halves; of 64 terms each x is off by 2^-12 of itself, and weights are below 2; a computed x sums 64 terms
      expect(apart).toBeLessThanOrEqual(64 * 2 ** -12 * 2 * (sizes.isComputed === true ? 64 : 1))
    }
  })

  it("are launches of their own: beside other values, and of what another product computes", () => {
    const stored = (sizes: Sizes): number =>
      toposort(ofProgram(sample(sizes).sink, matrix).sink).filter(({ op }) => op === "CONTIGUOUS").length
    expect([stored({}), stored({ isBeside: true }), stored({ isComputed: true })]).toEqual([0, 1, 1])
  })

  it("stay what they are where that pays nothing, or would round what nobody rounds", () => {
    expect(isRounded({}, h200)).toBe(false)
    expect(isRounded({ tokens: 8 })).toBe(false)
    expect(isRounded({ tokens: 24 })).toBe(false)
    // a router's matrix
    expect(isRounded({ weights: "floats" })).toBe(false)
    expect(isRounded({ isChosen: true })).toBe(false)
  })
})
