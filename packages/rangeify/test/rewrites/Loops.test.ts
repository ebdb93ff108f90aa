import { assert, describe, it } from "@effect/vitest"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { lower } from "../../src/Lower.ts"
import { mergeReductions } from "../../src/MergeReductions.ts"
import { place } from "../../src/Placement.ts"
import type { Schedule } from "../../src/Schedule.ts"
import { renumberRanges } from "../../src/SplitRanges.ts"
import { Build, runSchedule, runTensor } from "../support/programs.ts"
import { launches, plain, withAndWithout } from "../support/rewrites.ts"

/** Loops over which a kernel sums. */
const loops = (kernel: UOp): number =>
  new Set(toposort(kernel).flatMap((node) => node.op === "REDUCE" ? node.src.slice(1) : [])).size

describe("two sums over one axis", () => {
  it("are one kernel: 3 launches become 1", () => {
    const made = withAndWithout((b, alone) => {
      const x = b.f32(1, 32)
      return [b.out(alone(Nn.linear(x, b.f32(8, 32))).mul(alone(Nn.linear(x, b.f32(8, 32)))))]
    })
    assert.deepStrictEqual(launches(made), [3, 1])
  })

  it("share its loop: 2 loops become 1, with the same values to the bit", () => {
    const b = new Build()
    const x = b.f32(1, 32)
    const effect = b.out(Nn.linear(x, b.f32(8, 32)).mul(Nn.linear(x, b.f32(8, 32))))
    const { sink } = Program.make([effect])
    const { stored } = place([effect.node], [], plain.maxStorageBuffers - 1)
    const { ast, storage } = lower(new Arena(), effect.node, { stored, staged: new Set() })
    const run = (kernel: UOp) => {
      const args = storage.map((node) => ({ kind: "buffer", node } as const))
      const schedule: Schedule = {
        steps: [{ kind: "kernel", name: "product", ast: renumberRanges(kernel), args, boundaries: [] }],
        temporaries: [],
        results: []
      }
      return runSchedule(sink, schedule)
    }
    const merged = mergeReductions(ast)
    assert.deepStrictEqual([loops(ast), loops(merged)], [2, 1])
    assert.deepStrictEqual(run(merged), run(ast))
    assert.deepStrictEqual(run(merged), runTensor(sink))
  })
})
