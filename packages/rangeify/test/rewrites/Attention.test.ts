import { assert, describe, it } from "@effect/vitest"
import * as Bounds from "@tg/core-uop/Bounds"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import { loopsBetween, memoryOf } from "@tg/core-uop/Workgroup"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { members } from "../../src/Horizontal.ts"
import type { Limits } from "../../src/Rangeify.ts"
import { Build, scheduled } from "../support/programs.ts"
import { type Effects, launches, onH200, plain, plainAndOnH200, withAndWithout } from "../support/rewrites.ts"

/** Costs of a kernel that stages; one that does not costs more. */
const withCosts = (name: string, micros: (kernel: UOp) => number): Limits => ({
  ...plain,
  fusion: {
    key: name,
    maxWorkgroupBytes: 4096,
    kernelMicros: (kernel) => ({ wait: 0, work: kernel.src.length === 1 ? 1000 : micros(kernel) })
  }
})

const [heads, positions, piece, latent, value] = [2, 24, 4, 8, 16]

/** A query and the rows of a cache, small enough that no score is far from the others. */
const operands = (b: Build): readonly [query: Tensor.Tensor, rows: Tensor.Tensor] => [
  b.f32(heads, latent).mul(0.125),
  b.f32(positions, latent)
]

/** `exp(scores) rows / sum(exp(scores))`: `[heads, latent]`. */
const whole = (query: Tensor.Tensor, rows: Tensor.Tensor): Tensor.Tensor =>
  Nn.matmul(Nn.softmax(Nn.linear(query, rows)), rows)

/** Of each piece of the rows the weighed sum, the largest score and the sum of the weights: `[heads, pieces, latent + 2]`. */
const pieces = (query: Tensor.Tensor, rows: Tensor.Tensor): Tensor.Tensor => {
  const cut = rows.reshape([positions / piece, piece, latent])
  const scores = query.reshape([heads, 1, 1, latent]).mul(cut).sum(-1)
  const most = scores.max({ axis: -1, keepDims: true })
  const weights = scores.sub(most).exp()
  const mix = weights.unsqueeze(-1).mul(cut).sum(-2)
  return Nn.cat([mix, most, weights.sum({ axis: -1, keepDims: true })], -1)
}

/** What the pieces are together: `[heads, latent]`. */
const combine = (record: Tensor.Tensor): Tensor.Tensor => {
  const column = (at: number): Tensor.Tensor => record.slice(-1, latent + at, 1)
  const scale = column(0).sub(column(0).max({ axis: 1, keepDims: true })).exp()
  return record.slice(-1, 0, latent).mul(scale).sum(1).div(column(1).mul(scale).sum(1))
}

/** The heads' own value projections. */
const projected = (b: Build, mix: Tensor.Tensor): Tensor.Tensor => Nn.contract(mix, b.f32(heads, value, latent), 1)

describe("in attention of one token", () => {
  it("the write to the cache is part of what computes the row: 2 launches become 1", () => {
    const made = withAndWithout((b, alone) => {
      const [cache, kv, at] = [
        b.f32(positions, latent),
        b.f32(1, latent),
        Tensor.variable(b.arena, "at", 0, positions - 1)
      ]
      const row = Nn.rmsNorm(kv, b.f32(latent), 1e-5)
      const write = Program.assign(cache.slice(0, at, 1), alone(row))
      return [write]
    })
    assert.deepStrictEqual(launches(made, { at: 7 }), [2, 1])
  })

  it("scores, their maximum, weights and mix of each piece: 3 launches become 1", () => {
    const made = plainAndOnH200((b) => [b.out(pieces(...operands(b)))])
    assert.deepStrictEqual(launches(made), [3, 1])
  })

  describe("a workgroup that computes all heads of a piece, as the program says,", () => {
    const record = (b: Build, options: { readonly together?: number }): Tensor.Tensor =>
      pieces(...operands(b)).contiguous(options)
    const effects = (options: { readonly together?: number }): Effects => (b) => [b.out(combine(record(b, options)))]
    const kernelOf = (options: { readonly together?: number }): UOp => {
      const { steps } = scheduled(Program.make(effects(options)(new Build())).sink, onH200)
      return steps.flatMap((step) => step.kind === "kernel" && memoryOf(step.ast).length > 0 ? [step.ast] : [])[0]!
    }

    it("computes what it did, in as many launches", () => {
      assert.deepStrictEqual(
        launches([{ effects: effects({}), limits: onH200 }, { effects: effects({ together: 0 }), limits: onH200 }]),
        [2, 2]
      )
    })

    it("has an END for the maximum and the sum beside the mix, which then has neither conditions nor other additions", () => {
      const kernel = kernelOf({ together: 0 })
      assert.lengthOf(members(kernel), 1)
      const [rest, mix] = kernel.src.slice(-2)
      const count = (end: UOp, op: string): number => toposort(end).filter((node) => node.op === op).length
      assert.deepStrictEqual(["WHERE", "CMPLT", "REDUCE"].map((op) => count(mix!, op)), [0, 0, 1])
      const own = (end: UOp): ReadonlyArray<number> => end.src.slice(1).map((loop) => Number(loop.src[0]!.arg))
      assert.deepStrictEqual([own(rest!), own(mix!)], [[heads, positions / piece, 2], [
        heads,
        positions / piece,
        latent
      ]])
    })

    it("which one row does without", () => {
      assert.strictEqual(kernelOf({}).src.length, kernelOf({ together: 0 }).src.length - 1)
    })
  })

  it("a workgroup stages the scores of all heads where that is cheaper: the launches are the same, the workgroups fewer", () => {
    const effects: Effects = (b) => [b.out(pieces(...operands(b)))]
    const staged = (limits: Limits): ReadonlyArray<number> =>
      scheduled(Program.make(effects(new Build())).sink, limits).steps.flatMap((step) =>
        step.kind === "kernel"
          ? memoryOf(step.ast).map((memory) => (memory.arg as { readonly length: number }).length)
          : []
      )
    const alone = withCosts("alone", () => 1)
    const together = withCosts(
      "together",
      (kernel) => [...loopsBetween(kernel)].reduce((n, r) => n * (1 + Bounds.of(r).max), 1)
    )
    assert.deepStrictEqual(launches([{ effects, limits: alone }, { effects, limits: together }]), [1, 1])
    // scores, and the largest of them
    assert.deepStrictEqual([staged(alone), staged(together)], [[piece, 1], [heads * piece, heads]])
  })

  it("the combination of the pieces is part of the value projection: 4 launches become 1", () => {
    const made = plainAndOnH200((
      b
    ) => [b.out(projected(b, combine(b.f32(heads, positions / piece, latent + 2).abs())))])
    assert.deepStrictEqual(launches(made), [4, 1])
  })

  it("pieces and their projection, instead of all rows at once: 5 launches become 2", () => {
    const before: Effects = (b) => [b.out(projected(b, whole(...operands(b))))]
    const after: Effects = (b) => [b.out(projected(b, combine(pieces(...operands(b)).contiguous())))]
    assert.deepStrictEqual(
      launches([{ effects: before, limits: plain }, { effects: after, limits: onH200 }]),
      [5, 2]
    )
  })
})
