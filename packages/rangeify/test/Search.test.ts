import { assert, describe, it } from "@effect/vitest"
import { h200, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { key } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { randomProgram } from "@tg/tensor/Random"
import type * as Explain from "../src/Explain.ts"
import type { FusionCost } from "../src/Fusion.ts"
import { place } from "../src/Placement.ts"
import { kernels, type Limits, limitsOf } from "../src/Rangeify.ts"
import { search } from "../src/Search.ts"
import { Build, runSchedule, runTensor, scheduled } from "./support/programs.ts"

/** What a kernel costs by the number of values that it stages. */
const byStages = (...micros: ReadonlyArray<number>): FusionCost => ({
  key: `by stages ${micros}`,
  maxWorkgroupBytes: 16384,
  kernelMicros: (kernel) => ({ wait: 0, work: micros[kernel.src.length - 1]! })
})

const softmax = () => {
  const b = new Build()
  return Program.make([b.out(Nn.softmax(b.f32(4, 48)))]).sink
}

const placed = (fusion: FusionCost, beam?: number) => {
  const limits: Limits = { maxStorageBuffers: 8, fusion }
  return search(place(softmax().src, [], 7), limits, beam === undefined ? {} : { beam })
}

describe("Search", () => {
  // three kernels for 3; one with two stages for 2; whatever has one stage is dear, and on every way from the first to the second
  const onlyTogether = byStages(1, 2.6, 2)

  it("finds two values that pay only together, where one choice after the other does not", () => {
    assert.strictEqual(placed(onlyTogether, 1).staged.size, 0)
    assert.strictEqual(placed(onlyTogether).staged.size, 2)
  })

  it("computes the same with them", () => {
    const sink = softmax()
    const made = scheduled(sink, { maxStorageBuffers: 8, fusion: onlyTogether })
    assert.strictEqual(made.steps.length, 1)
    const want = runTensor(sink)
    // a sum of 48 floats, in another order
    for (const [id, data] of runSchedule(sink, made)) {
      data.forEach((x, i) => assert.closeTo(x, want.get(id)![i]!, 1e-5))
    }
  })

  it("decides by the costs that it is given", () => {
    assert.strictEqual(placed(byStages(1, 1, 1)).staged.size, 2)
    assert.strictEqual(placed(byStages(1, 10, 10)).staged.size, 0)
  })

  it("weighs a kernel of a program once, by the same costs and limits", () => {
    const { src } = softmax()
    let weighed = 0
    const counted = (own: FusionCost): FusionCost => ({
      ...own,
      kernelMicros: (kernel) => {
        weighed++
        return own.kernelMicros(kernel)
      }
    })
    const again = (fusion: FusionCost, maxStorageBuffers = 8): number => {
      weighed = 0
      search(place(src, [], 7), { maxStorageBuffers, fusion: counted(fusion) })
      return weighed
    }
    assert.isAbove(again(onlyTogether), 0)
    assert.strictEqual(again(onlyTogether), 0)
    assert.isAbove(again(byStages(1, 10, 10)), 0)
    assert.isAbove(again(onlyTogether, 9), 0)
  })

  it("says what each home would cost, with all others where they are", () => {
    const homes = placed(onlyTogether)
    for (const [, considered] of homes.considered) {
      const [chosen, other] = considered
      assert.deepStrictEqual(chosen, { home: "workgroup", verdict: { _tag: "Cost", micros: 2 } })
      assert.strictEqual(other!.home, "global")
    }
    const micros = ({ verdict }: Explain.Considered): number => verdict._tag === "Cost" ? verdict.micros : NaN
    // the sum stored: two kernels with a stage each; the largest elements stored: one kernel with, and one without a stage
    assert.deepStrictEqual([...homes.considered.values()].map((all) => micros(all[1]!)), [5.2, 3.6])
  })

  it("counts kernels that wait together as one launch", () => {
    const waiting: FusionCost = {
      key: "waiting",
      maxWorkgroupBytes: 16384,
      // staging the doubled sum costs half a launch in each of two kernels
      kernelMicros: (kernel) => ({ wait: 1, work: 0.3 * (kernel.src.length - 1) })
    }
    const launches = (joinsKernels: boolean): number => {
      const b = new Build()
      const sum = b.f32(4, 48).sum(1)
      const users = [sum.unsqueeze(1).mul(b.f32(4, 6)), sum.unsqueeze(1).add(b.f32(4, 6))]
      const { sink } = Program.make(users.map((user) => b.out(user)))
      return kernels(scheduled(sink, { maxStorageBuffers: 8, fusion: waiting, joinsKernels })).length
    }
    // stored 3 launches, staged 2 and 0.6 for the stages; joined 2, and 1 with 0.6
    assert.deepStrictEqual([launches(false), launches(true)], [2, 1])
  })

  it("still stages elsewhere if one kernel needs more bindings than there are", () => {
    const b = new Build()
    // a sum of products of rows that memory names: each of the three is a choice among three windows
    const rows = () => b.f32(3000).gather(b.u32(48))
    const sum = rows().mul(rows()).mul(rows()).sum(0)
    const { sink } = Program.make([b.out(Nn.softmax(b.f32(4, 48))), b.out(sum)])
    const limits = { maxStorageBuffers: 8, maxBindingBytes: 4096, fusion: byStages(1, 1, 1) }
    const made = scheduled(sink, limits)
    const stages = kernels(made).map(({ ast }) => ast.src.length - 1)
    assert.deepStrictEqual(stages.filter((count) => count > 0), [2])
    for (const { args } of made.steps) assert.isAtMost(args.length, 8)
    const causes = made.steps.flatMap(({ boundaries }) => boundaries.map(({ cause }) => cause._tag))
    assert.include(causes, "Bindings")
    const want = runTensor(sink)
    // a sum of 48 floats, in another order
    for (const [id, data] of runSchedule(sink, made)) {
      data.forEach((x, i) => assert.closeTo(x, want.get(id)![i]!, 1e-5 * Math.max(1, Math.abs(x))))
    }
  })

  it("places the same program alike, in any arena", () => {
    for (const profile of [h200, webgpuDefault]) {
      for (let seed = 0; seed < 10; seed++) {
        const [a, b] = [0, 1].map(() => {
          const { steps } = scheduled(randomProgram(seed, 24).program.sink, limitsOf(profile))
          return steps.map((s) => `${s.name} ${s.kind === "kernel" ? key(s.ast) : ""} ${JSON.stringify(s.boundaries)}`)
        })
        assert.deepStrictEqual(a, b, `seed ${seed}`)
      }
    }
  })
})
