import { assert, describe, it } from "@effect/vitest"
import { Profile, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena } from "@tg/core-uop/UOp"
import * as Reference from "@tg/runtime/Reference"
import { kernels, limitsOf, RangeifyError, schedule } from "@tg/rangeify/Rangeify"
import * as Program from "@tg/tensor/Program"
import { buffer } from "@tg/tensor/Tensor"
import { Effect } from "effect"
import * as Barriers from "../src/Barriers.ts"
import { Pipeline } from "../src/Pipeline.ts"
import * as Stages from "../src/Stages.ts"

describe("barriers of a kernel", () => {
  it("count once for each iteration of the loops around them", () => {
    const arena = new Arena()
    const barrier = (id: number) => arena.make("BARRIER", DType.none, [], id)
    const rows = Expr.range(arena, 3, 0, "REDUCE")
    const tokens = Expr.range(arena, Expr.variable(arena, "T", 1, 8), 1, "REDUCE")
    const end = (range: typeof rows) => arena.make("END", DType.none, [range])
    const linear = arena.make("LINEAR", DType.none, [
      barrier(0),
      rows,
      barrier(1),
      tokens,
      barrier(2),
      end(tokens),
      end(rows),
      barrier(3)
    ])
    assert.strictEqual(Barriers.count(linear, { T: 5 }), 1 + 3 * (1 + 5) + 1)
  })

  it("are those that a reduction over threads waits at, of each member of a launch", () => {
    const caps = { hasGrid: true, lanes: [1, 4] } as const
    const countOf = (sums: number): number => {
      const arena = new Arena()
      const effects = Array.from({ length: sums }, (_, i) => {
        const x = buffer(arena, 2 * i, { shape: [4, 4096], dtype: DType.f32 })
        return Program.assign(buffer(arena, 2 * i + 1, { shape: [4], dtype: DType.f32 }), x.sum(1))
      })
      const made = schedule(Program.make(effects).sink, limitsOf(webgpuDefault))
      if (made instanceof RangeifyError) throw made
      const [launch, ...others] = kernels(made)
      assert.deepStrictEqual(others, [])
      const { linear } = Effect.runSync(
        Effect.flatMap(Pipeline, (pipeline) => Stages.ofKernel(pipeline, launch!.name, launch!.ast)).pipe(
          Effect.provide(Pipeline.layer),
          Effect.provide([Reference.renderer(caps), Profile.layer(webgpuDefault)])
        )
      )
      return Barriers.count(linear, {})
    }
    const one = countOf(1)
    assert.isAbove(one, 0)
    assert.strictEqual(countOf(2), 2 * one)
  })
})

describe("barriers of a kernel written by hand", () => {
  it("are those in its text, less what is commented out", () => {
    const text = `
      var<workgroup> sum: array<f32, 64>; // no workgroupBarrier() here
      /* storageBarrier();
         workgroupBarrier(); */
      fn myworkgroupBarrier() {}
      @compute @workgroup_size(64) fn main() {
        workgroupBarrier();
        for (var i = 0u; i < 6u; i++) { workgroupBarrier (); }
        storageBarrier();
        let x = workgroupUniformLoad(&sum[0]);
      }`
    assert.strictEqual(Barriers.countText({ text }), 1 + 1 + 1 + 2)
    assert.strictEqual(Barriers.countText({ text: "(func (export \"run\"))" }), 0)
  })
})
