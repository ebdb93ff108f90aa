import { assert, describe, it } from "@effect/vitest"
import { h200 } from "@tg/core-uop/DeviceProfile"
import type { Tensor } from "@tg/tensor/Tensor"
import * as Program from "@tg/tensor/Program"
import { bodyGraph } from "../src/BodyGraph.ts"
import { type KernelMicros } from "../src/Fusion.ts"
import { apartMicros, joinedMicros } from "../src/JoinedCost.ts"
import { place } from "../src/Placement.ts"
import { limitsOf } from "../src/Rangeify.ts"
import { Build } from "./support/programs.ts"

const kernel = (parts: Partial<KernelMicros>): KernelMicros => ({ wait: 1, work: 0, ...parts })

/** Four sums one after the other, and two sums beside them, of which the second needs the first. */
const graph = () => {
  const b = new Build()
  const sum = (x: Tensor): Tensor => x.sum(0).contiguous()
  const long = sum(sum(sum(sum(b.f32(2, 2, 2, 2, 6)))))
  const early = sum(b.f32(2, 2, 6))
  const late = sum(early)
  const { sink } = Program.make([b.out(long.add(late))])
  const placement = place(sink.src, [], limitsOf(h200).maxStorageBuffers)
  return bodyGraph(placement)
}

describe("joined kernels", () => {
  it("have a launch each behind what they need, though one launch would hide the one beside the other", () => {
    const { fixed, levelsOf } = graph()
    const levels = levelsOf(fixed)()
    const free = [...levels.keys()].filter((i) => levels[i]!.first < levels[i]!.last)
    assert.deepStrictEqual(free.map((i) => levels[i]), [{ first: 0, last: 2 }, { first: 1, last: 3 }])
    const [early, late] = free as [number, number]
    // one computes as long as the other one loads
    const kernels = fixed.map((_, i) => kernel(i === early ? { work: 4 } : i === late ? { transfer: 4 } : {}))
    const micros = joinedMicros(kernels, levelsOf(fixed))
    assert.strictEqual(micros, (fixed.length - 2) + 4 + 4)
    assert.strictEqual(apartMicros(kernels), fixed.length + 4 + 4)
  })

  it("leave to others the launches in front of them and behind them", () => {
    const { fixed, levelsOf } = graph()
    const levels = levelsOf(fixed)()
    const [early, late] = [...levels.keys()].filter((i) => levels[i]!.first < levels[i]!.last) as [number, number]
    assert.deepStrictEqual(levelsOf(fixed)(new Map([[early, 2]]))[late], { first: 3, last: 3 })
    assert.deepStrictEqual(levelsOf(fixed)(new Map([[late, 1]]))[early], { first: 0, last: 0 })
    for (const [i, { first, last }] of levelsOf(fixed)(new Map([[early, 1]])).entries()) {
      if (i !== early && i !== late) assert.deepStrictEqual({ first, last }, levels[i])
    }
  })
})
