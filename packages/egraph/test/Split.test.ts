import { h200, wasm, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { cascadeAt } from "@tg/egraph/Cascade"
import { inPieces, law } from "@tg/egraph/Pieces"
import { ofProgram } from "@tg/egraph/Split"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { buffer, type Tensor, variable } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { difference } from "./support/programs.ts"

interface Sizes {
  readonly tokens?: number
  readonly groups: number
  /** Heads of a group, which share keys and values. */
  readonly heads: number
  readonly size: number
  readonly context: number
}

/** `softmax(q k^T) v` of `[T, G, H, size]` over `64 pieces` positions, as papers write it. */
const attention = ({ context, groups, heads, size, tokens = 1 }: Sizes) => {
  const arena = new Arena()
  const leaf = (id: number, shape: ReadonlyArray<number>): Tensor => buffer(arena, id, { shape, dtype: DType.f32 })
  const positions = variable(arena, "pieces", 1, context / 64).mul(64)
  const [q, out] = [leaf(0, [tokens, groups, heads, size]), leaf(1, [tokens, groups, heads, size])]
  const cached = (id: number): Tensor => leaf(id, [context, groups, size]).slice(0, 0, positions).permute([1, 0, 2])
  const [k, v] = [cached(2), cached(3)]
  const scores = q.unsqueeze(3).mul(k.unsqueeze(1)).sum(-1).mul(size ** -0.5)
  const mix = Nn.softmax(scores).unsqueeze(-1).mul(v.unsqueeze(1)).sum(-2).label("attn")
  return {
    sink: Program.make([Program.assign(out, mix)]).sink,
    mix: mix.node,
    leaves: [q, out, leaf(2, [context, groups, size]), leaf(3, [context, groups, size])]
  }
}

const mistral = { groups: 8, heads: 4, size: 128 }

describe("pieces by cost", () => {
  const chosen = (sizes: Sizes, profile = h200): string => {
    const { reports: [report] } = ofProgram(attention(sizes).sink, profile)
    return report === undefined
      ? "whole"
      : report.piece === undefined
      ? "whole"
      : `${report.piece}, ${report.together} together`
  }

  it("one token: pieces, with heads together in long contexts only", () => {
    expect(chosen({ ...mistral, context: 1024 })).toBe("64, 1 together")
    expect(chosen({ ...mistral, context: 16384 })).toBe("64, 4 together")
    // one key for all heads
    for (const context of [1024, 4096]) {
      expect(chosen({ groups: 1, heads: 20, size: 512, context })).toBe("64, 1 together")
    }
    for (const context of [8192, 16384]) {
      expect(chosen({ groups: 1, heads: 20, size: 512, context })).toBe("64, 4 together")
    }
  })

  it("a few tokens: more rows together, of tokens too where they are many", () => {
    const mla = { groups: 1, heads: 20, size: 512 }
    for (const tokens of [2, 4]) expect(chosen({ ...mla, tokens, context: 4096 })).toBe("64, 4 together")
    for (const tokens of [2, 4]) expect(chosen({ ...mla, tokens, context: 512 })).toBe("64, 2 together")
    expect(chosen({ ...mla, tokens: 8, context: 512 })).toBe("64, 4 together")
    for (const tokens of [8, 16, 32]) expect(chosen({ ...mla, tokens, context: 16384 })).toBe("64, 8 together")
  })

  it("of 32 tokens in short contexts, too: who reads all positions at once unpacks them as well", () => {
    expect(chosen({ ...mistral, tokens: 32, context: 512 })).toBe("64, 4 together")
    expect(chosen({ groups: 1, heads: 20, size: 512, tokens: 32, context: 1024 })).toBe("64, 4 together")
  })

  it("of a few tokens in short contexts, where each score and each weight would be a workgroup", () => {
    const found = [256, 512, 832].flatMap((context) =>
      [2, 4, 8, 16, 32].flatMap((tokens) =>
        [{ groups: 1, heads: 20, size: 512 }, { groups: 1, heads: 16, size: 512 }, mistral].map((model) =>
          chosen({ ...model, tokens, context })
        )
      )
    )
    expect(found.filter((each) => each === "whole")).toEqual([])
  })

  it("heads with keys of their own share nothing", () => {
    expect(chosen({ groups: 32, heads: 1, size: 128, context: 16384 })).toBe("64, 1 together")
  })

  it("a prompt keeps the device busy without them, and so does one thread", () => {
    expect(chosen({ ...mistral, tokens: 512, context: 512 })).toBe("whole")
    expect(chosen({ ...mistral, context: 4096 }, wasm)).toBe("whole")
  })

  it("a device that nobody measured has pieces, too", () => {
    expect(chosen({ ...mistral, context: 4096 }, webgpuDefault)).not.toBe("whole")
  })

  it("sums of products alone stay whole: threads share them as they are", () => {
    const arena = new Arena()
    const [x, w, out] = [[1, 2048], [768, 2048], [1, 768]].map((shape, id) =>
      buffer(arena, id, { shape, dtype: DType.f32 })
    )
    const normed = x!.mul(Nn.rmsScale(x!, 1e-5))
    const { sink } = Program.make([Program.assign(out!, Nn.linear(normed, w!))])
    expect(ofProgram(sink, h200).sink).toBe(sink)
  })
})

const contents = (leaves: ReadonlyArray<Tensor>): ReadonlyMap<UOp, Float32Array> =>
  new Map(
    leaves.map(({ node, shape }, i) => [
      node,
      Float32Array.from({ length: shape.reduce<number>((n, d) => n * Number(d), 1) }, (_, k) => Math.sin(k * 0.37 + i))
    ])
  )

it("keeps values, specs and labels, and says what it chose", () => {
  const made = attention({ tokens: 2, groups: 2, heads: 4, size: 8, context: 512 })
  const { reports, sink } = ofProgram(made.sink, h200)
  expect(sink).not.toBe(made.sink)
  expect(reports).toMatchObject([{ label: "attn", rows: 16, positions: 128, width: 8, steps: 3, piece: 64 }])
  expect(Spec.check("tensor", sink)).toEqual([])
  const [before, after] = [made.sink, sink].map((each) => {
    const buffers = contents(made.leaves)
    evaluate([each], { buffers, vars: { pieces: 5 } })
    return Array.from(buffers.get(made.leaves[1]!.node)!)
  })
  expect(difference(before!, after!)).toBeLessThanOrEqual(law.bound)
})

it("rows together change no value", () => {
  const made = attention({ tokens: 4, groups: 2, heads: 4, size: 8, context: 256 })
  const cascade = cascadeAt(made.mix)!
  const ways = [[], [{ axis: 0, size: 2 }], [{ axis: 2, size: 4 }], [{ axis: 0, size: 4 }, { axis: 2, size: 2 }]]
  const split = ways.map((together) => inPieces(cascade, { piece: 64, together })!)
  const values = evaluate([made.mix, ...split], { buffers: contents(made.leaves), vars: { pieces: 3 } })
    .map((value) => Array.from(value!.data))
  for (const own of values.slice(1)) expect(difference(values[0]!, own)).toBeLessThanOrEqual(law.bound)
})
