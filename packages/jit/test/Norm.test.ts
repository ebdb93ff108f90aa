import { assert, describe, it } from "@effect/vitest"
import { h200 } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import * as Heuristics from "@tg/heuristics/Heuristics"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import type { RandomProgram } from "@tg/tensor/Random"
import { buffer, variable } from "@tg/tensor/Tensor"
import { difference, runSchedule, runTensor, scheduled, stages } from "./support/stages.ts"

/** Rows, as many as a variable says, normalised, times a matrix: a reduction over threads inside the value of another. */
const normalisedProduct = (length: number): RandomProgram => {
  const arena = new Arena()
  const shapes = [[3, length], [length], [8, length]] as const
  const [all, g, w] = shapes.map((shape, id) => buffer(arena, id, { shape: [...shape], dtype: DType.f32 }))
  const rows = variable(arena, "rows", 1, 3)
  const x = all!.slice(0, 0, rows)
  const out = buffer(arena, 3, { shape: [3, 8], dtype: DType.f32 }).slice(0, 0, rows)
  return {
    steps: [],
    program: Program.make([Program.assign(out, Nn.linear(Nn.rmsNorm(x, g!, 1e-5), w!))]),
    inputs: shapes.map((shape, id) => {
      const elements = shape.reduce((n, d) => n * d, 1)
      const data = Float32Array.from({ length: elements }, (_, i) => Math.sin(1 + i + id))
      return { id, dtype: DType.f32, shape, capacity: shape, data }
    }),
    // sums of up to 256 products of magnitude 1, rounded at every step by one side
    outputs: [{ id: 3, dtype: DType.f32, shape: [3, 8], capacity: [3, 8], tolerance: 1e-4 }],
    vars: { rows: 2 }
  }
}

describe("a norm in front of a product", () => {
  for (const length of [32, 64, 128, 256]) {
    for (const subgroupSize of [undefined, 32]) {
      it(`of ${length} elements is one kernel and right, ${subgroupSize ?? "no"} lanes`, () => {
        const random = normalisedProduct(length)
        const schedule = scheduled(random)
        assert.strictEqual(schedule.steps.length, 1)
        const options = {
          choose: (kernel: Parameters<typeof Heuristics.choose>[0]) =>
            Heuristics.choose(kernel, { ...h200, subgroupSize }),
          hasGrid: true,
          ...(subgroupSize === undefined ? {} : { subgroupSize })
        }
        const got = runSchedule(random, schedule, stages.linear(options))
        assert.isUndefined(difference(random, runTensor(random), got))
      })
    }
  }
})
