import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import type { Data } from "@tg/core-uop/EvaluateOps"
import { Arena, openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import type { Tensor } from "@tg/tensor/Tensor"
import { hoistFactors } from "../../src/HoistFactors.ts"
import { lower } from "../../src/Lower.ts"
import { mergeReductions } from "../../src/MergeReductions.ts"
import { place } from "../../src/Placement.ts"
import { renumberRanges } from "../../src/SplitRanges.ts"
import { Build, runSchedule, runTensor } from "../support/programs.ts"
import { launches, plain, withAndWithout } from "../support/rewrites.ts"

/** Loops over which a kernel sums. */
const loops = (kernel: UOp): number =>
  new Set(toposort(kernel).flatMap((node) => node.op === "REDUCE" ? node.src.slice(1) : [])).size

/** Products that a kernel computes for each element of its sums. */
const productsInSums = (kernel: UOp): number =>
  toposort(kernel).filter((sum) => sum.op === "REDUCE").reduce((n, sum) => {
    const isInside = (node: UOp): boolean => [...openRanges(node)].some((range) => sum.src.indexOf(range) > 0)
    return n + toposort(sum.src[0]!).filter((x) => x.op === "MUL" && x.dtype !== DType.index && isInside(x)).length
  }, 0)

/** A program of one kernel as it is lowered, what variants of the kernel compute, and what the program does. */
const lowered = (made: (b: Build) => Tensor) => {
  const b = new Build()
  const effect = b.out(made(b))
  const { sink } = Program.make([effect])
  const { stored } = place([effect.node], [], plain.maxStorageBuffers - 1)
  const { ast, storage } = lower(new Arena(), effect.node, { stored, staged: new Set() })
  const output = (storage[0]!.arg as { readonly id: number }).id
  const args = storage.map((node) => ({ kind: "buffer", node } as const))
  const run = (kernel: UOp): Data => {
    const step = { kind: "kernel", name: "one", ast: renumberRanges(kernel), args, boundaries: [] } as const
    return runSchedule(sink, { steps: [step], temporaries: [], results: [] }).get(output)!
  }
  return { ast, run, want: runTensor(sink).get(output)! }
}

const close = (got: Data, want: Data): void =>
  // sums of 32 floats, rounded at other places
  want.forEach((x, i) => assert.closeTo(got[i]!, x, 1e-5 * Math.max(1, Math.abs(x))))

describe("two sums over one axis", () => {
  it("are one kernel: 3 launches become 1", () => {
    const made = withAndWithout((b, alone) => {
      const x = b.f32(1, 32)
      return [b.out(alone(Nn.linear(x, b.f32(8, 32))).mul(alone(Nn.linear(x, b.f32(8, 32)))))]
    })
    assert.deepStrictEqual(launches(made), [3, 1])
  })

  it("share its loop: 2 loops become 1, with the same values to the bit", () => {
    const { ast, run, want } = lowered((b) => {
      const x = b.f32(1, 32)
      return Nn.linear(x, b.f32(8, 32)).mul(Nn.linear(x, b.f32(8, 32)))
    })
    const merged = mergeReductions(ast)
    assert.deepStrictEqual([loops(ast), loops(merged)], [2, 1])
    assert.deepStrictEqual(run(merged), run(ast))
    assert.deepStrictEqual(run(merged), want)
  })
})

describe("a factor that does not change in a sum", () => {
  it("is applied once, behind it: 2 products for each element become 1", () => {
    const { ast, run, want } = lowered((b) => b.f32(4, 32).mul(b.f32(4, 1).mul(0.3)).mul(b.f32(32)).sum(1))
    const hoisted = hoistFactors(ast)
    assert.deepStrictEqual([productsInSums(ast), productsInSums(hoisted)], [2, 1])
    close(run(ast), want)
    close(run(hoisted), want)
  })

  it("wraps alike in integers, to the bit", () => {
    const { ast, run, want } = lowered((b) => b.u32(4, 32).mul(b.u32(4, 1).add(2 ** 31 + 1)).sum(1))
    const hoisted = hoistFactors(ast)
    assert.deepStrictEqual([productsInSums(ast), productsInSums(hoisted)], [1, 0])
    assert.deepStrictEqual(run(hoisted), want)
  })

  it("lets a product share the loop of the norm in front of it: 2 loops become 1", () => {
    const { ast, run, want } = lowered((b) => Nn.linear(Nn.rmsNorm(b.f32(1, 32), b.f32(32), 1e-5), b.f32(8, 32)))
    const merged = mergeReductions(hoistFactors(ast))
    assert.deepStrictEqual([loops(mergeReductions(ast)), loops(merged)], [2, 1])
    close(run(ast), want)
    close(run(merged), want)
  })

  it("stays where all factors are such, and where a sum is none", () => {
    const of = (made: (b: Build) => Tensor): boolean => {
      const { ast } = lowered(made)
      return hoistFactors(ast) === ast
    }
    assert.isTrue(of((b) => b.f32(4, 1).mul(2).expand([4, 8]).sum(1)))
    assert.isTrue(of((b) => b.f32(4, 8).mul(b.f32(4, 1)).max(1)))
    assert.isTrue(of((b) => b.f32(4, 8).mul(b.f32(8)).sum(1)))
  })
})
