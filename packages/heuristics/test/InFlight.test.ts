import { assert, describe, it } from "@effect/vitest"
import { h200 } from "@tg/core-uop/DeviceProfile"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import * as Opt from "@tg/postrange/Opt"
import { Plan } from "../src/Plan.ts"
import { keepOpenLoadsInFlight } from "../src/InFlight.ts"
import { copiesOf } from "../src/Staged.ts"
import * as Kernels from "./support/kernels.ts"

const [rows, columns] = [4096, 4]

/** Sums of the first rows of a matrix. */
const run = ({ kernel }: Plan, n: number): Float32Array => {
  const out = new Float32Array(columns)
  evaluateKernel(kernel, [out, Float32Array.from({ length: rows * columns }, (_, i) => i % 17)], { n })
  return out
}

describe("loads of a loop of symbolic size", () => {
  const planned = (most: number, ...opts: ReadonlyArray<Opt.Opt>): Plan => {
    const plan = new Plan(Kernels.symbolicSum(columns), h200)
    for (const opt of opts) assert.isTrue(plan.try(opt))
    keepOpenLoadsInFlight(plan, () => plan.kernel.src[0]!, most)
    return plan
  }

  it("several are in flight, as far as the loop may be long", () => {
    assert.deepStrictEqual(planned(4).opts.map(Opt.print), ["UNROLL(r1, 4)"])
    assert.deepStrictEqual(planned(4, Opt.upcast(0, 4)).opts.map(Opt.print), ["UPCAST(r0, 4)", "UNROLL(r1, 4)"])
    assert.deepStrictEqual(planned(1).opts, [])
    assert.deepStrictEqual(planned(4, Opt.group(1, 512)).opts.map(Opt.print), ["GROUP(r1, 512)"])
  })

  it("the values are the same, wherever the loop ends", () => {
    for (const n of [1, 3, 4, 5, 129, rows]) {
      const expected = run(planned(1), n)
      assert.deepStrictEqual(run(planned(4), n), expected)
      assert.deepStrictEqual(run(planned(4, Opt.group(1, 32)), n), expected)
    }
  })
})

describe("a short loop", () => {
  const copies = (opts: ReadonlyArray<Opt.Opt>, areResident = true): number => {
    const plan = new Plan(Kernels.matvec(64, 16), h200)
    for (const opt of opts) assert.isTrue(plan.try(opt))
    return copiesOf(plan.kernel, 1, areResident)
  }

  it("has more copies where a thread has one result, as they are loads that are under way", () => {
    assert.strictEqual(copies([]), 64)
    assert.strictEqual(copies([Opt.local(0, 32)]), 64)
    assert.strictEqual(copies([Opt.upcast(0, 2)]), 32)
  })

  it("has fewer where workgroups would wait for the registers of others", () => {
    assert.strictEqual(copies([], false), 32)
  })
})
