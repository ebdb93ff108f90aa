import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as DType from "@tg/core-uop/DType"
import { h200 } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { ofProgram } from "@tg/egraph/MatrixSplit"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { buffer, type Tensor, variable } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { areHalves, matrix } from "./support/latent.ts"
import { difference } from "./support/programs.ts"

const [heads, most] = [2, 128]

interface Sizes {
  readonly tokens?: number
  readonly width?: number
  /** Whether values of positions and weights are in memory, as those of a batch are. */
  readonly isStored?: boolean
  /** Whether something else in the program is rounded to bytes. */
  readonly activations?: "int8" | "float"
}

/** Values of each head, which are no halves of a cache, weighed by softmax over the positions of a context. */
const sample = ({ activations = "int8", isStored = true, tokens = 16, width = 16 }: Sizes = {}) => {
  const arena = new Arena()
  const leaf = (id: number, shape: ReadonlyArray<number>, dtype = DType.f32) => buffer(arena, id, { shape, dtype })
  const positions = variable(arena, "pieces", 1, most / 64).mul(64)
  const laid = (x: Tensor): Tensor => isStored ? x.contiguous() : x
  const scores = leaf(0, [heads, most, tokens])
  const keys = leaf(1, [heads, most, width])
  const weights = laid(Nn.softmax(scores.slice(1, 0, positions).permute([0, 2, 1])))
  const values = laid(keys.slice(1, 0, positions).permute([0, 2, 1]).mul(0.5).exp2())
  const mix = weights.unsqueeze(2).mul(values.unsqueeze(1)).sum(-1).label("mix")
  const out = leaf(2, mix.shape.map(Number))
  const bytes = leaf(3, [4], DType.u32)
  const dot = leaf(4, [4], DType.i32)
  const others = activations === "int8" ? [Program.assign(dot, bytes.dot4I8(bytes))] : []
  return {
    sink: Program.make([Program.assign(out, mix), ...others]).sink,
    out,
    leaves: [scores, keys, out, bytes, dot]
  }
}

const valuesOf = ({ leaves, out }: ReturnType<typeof sample>, sink: UOp, pieces: number): ReadonlyArray<number> => {
  const buffers = new Map(leaves.map(({ dtype, node, shape }, leaf) => {
    const values = Array.from({ length: Shape.maxElements(shape) }, (_, i) => Math.sin(i * 0.37 + leaf))
    return [node, dtype === DType.f32 ? Float32Array.from(values) : new Int32Array(values.length)]
  }))
  evaluate([sink], { buffers, vars: { pieces } })
  return Array.from(buffers.get(out.node)!)
}

const isRounded = (sizes: Sizes, profile = matrix): boolean => areHalves(ofProgram(sample(sizes).sink, profile).sink)

describe("values of each head, weighed over positions, on matrix units", () => {
  it("and their weights are halves", () => {
    const made = sample()
    const { sink } = ofProgram(made.sink, matrix)
    expect(areHalves(sink)).toBe(true)
    expect(Spec.check("tensor", sink)).toEqual([])
    for (const pieces of [1, 2]) {
      const apart = difference(valuesOf(made, made.sink, pieces), valuesOf(made, sink, pieces))
      expect(apart).toBeGreaterThan(0)
      // weights sum up to 1, values are below 1.5: each is off by 2^-12 of itself
      expect(apart).toBeLessThanOrEqual(2 * 1.5 * 2 ** -12)
    }
  })

  it("stay floats where nothing is rounded, or rows fill no fragments, or a kernel would compute them again", () => {
    expect(isRounded({}, h200)).toBe(false)
    expect(isRounded({ activations: "float" })).toBe(false)
    expect(isRounded({ tokens: 8 })).toBe(false)
    expect(isRounded({ width: 24 })).toBe(false)
    expect(isRounded({ isStored: false })).toBe(false)
  })
})
