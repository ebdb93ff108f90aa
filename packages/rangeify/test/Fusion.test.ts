import { assert, describe, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { type Tensor, variable } from "@tg/tensor/Tensor"
import { addedMicros, type FusionCost, type KernelMicros, launchOf, ofProfile } from "../src/Fusion.ts"
import { kernels } from "../src/Rangeify.ts"
import { Build, runSchedule, runTensor, scheduled } from "./support/programs.ts"

/** Every kernel costs the same, so whatever may be staged in workgroup memory is. */
const stageAll: FusionCost = { key: "stage all", maxWorkgroupBytes: 16384, kernelMicros: () => ({ wait: 0, work: 1 }) }

const counts = (made: (b: Build) => Tensor, fusion: FusionCost): readonly [before: number, after: number] => {
  const b = new Build()
  const { sink } = Program.make([b.out(made(b))])
  const want = runTensor(sink)
  const before = scheduled(sink)
  const after = scheduled(sink, { maxStorageBuffers: 8, fusion })
  for (const schedule of [before, after]) {
    for (const [id, data] of runSchedule(sink, schedule)) {
      const expected = want.get(id)!
      // sums of a few dozen floats, in another order
      data.forEach((x, i) => assert.closeTo(x, expected[i]!, 1e-4 * Math.max(1, Math.abs(expected[i]!))))
    }
  }
  return [kernels(before).length, kernels(after).length]
}

const localsOf = (kernel: UOp): ReadonlyArray<number> =>
  toposort(kernel).filter((n) => n.op === "LOCAL").map((n) => (n.arg as { readonly length: number }).length)

describe("staging in workgroup memory", () => {
  it("makes a softmax one kernel", () => {
    assert.deepStrictEqual(counts((b) => Nn.softmax(b.f32(4, 48)), stageAll), [3, 1])
  })

  it("makes a top-k one kernel", () => {
    const [before, after] = counts((b) => Nn.topK(b.f32(3, 48).sigmoid(), 4).values, stageAll)
    assert.isAbove(before, 1)
    assert.strictEqual(after, 1)
  })

  it("quantises the rows of a product where they are computed, a block for each workgroup", () => {
    const product = (b: Build): Tensor => Int8.quantise(Nn.linear(b.f32(1, 16), b.f32(64, 16))).contiguous()
    // the last one copies the blocks to the output
    assert.deepStrictEqual(counts(product, stageAll), [3, 2])
    const b = new Build()
    const { sink } = Program.make([b.out(product(b))])
    const [kernel] = kernels(scheduled(sink, { maxStorageBuffers: 8, fusion: stageAll }))
    assert.deepStrictEqual(localsOf(kernel!.ast), [32])
  })

  it("takes no maximum over pieces of a context for that of a block, where there are as many", () => {
    /** Values of pieces, each below the maximum of its own, put together: the stages of the kernel for so many pieces at most. */
    const stages = (most: number): number => {
      const b = new Build()
      const pieces = variable(b.arena, "pieces", 1, most)
      const maxima = b.f32(4, most).slice(1, 0, pieces)
      const weights = maxima.sub(maxima.max({ axis: 1, keepDims: true })).exp2()
      const mixed = weights.unsqueeze(-1).mul(b.f32(4, most, 512).slice(1, 0, pieces)).sum(1)
      const whole = mixed.div(weights.sum({ axis: 1, keepDims: true })).contiguous()
      const { sink } = Program.make([b.out(Nn.contract(whole.unsqueeze(1), b.f32(4, 64, 512), 1))])
      const fusion = ofProfile(DeviceProfile.h200)
      const made = scheduled(sink, { maxStorageBuffers: 8, fusion })
      return Math.max(...kernels(made).map(({ ast }) => ast.src.length))
    }
    assert.isAbove(stages(31), 1)
    assert.strictEqual(stages(32), stages(31))
    assert.strictEqual(stages(64), stages(31))
  })

  it("does not make every workgroup repeat a product of matrices", () => {
    const b = new Build()
    const { sink } = Program.make([b.out(Nn.linear(Nn.linear(b.f32(1, 256), b.f32(512, 256)), b.f32(512, 512)))])
    const fusion = ofProfile(DeviceProfile.h200)
    assert.strictEqual(kernels(scheduled(sink, { maxStorageBuffers: 8, fusion })).length, 2)
  })

  it("costs every workgroup the loads of what it stages, where these exceed a processor's cache", () => {
    const cost = ofProfile(DeviceProfile.h200)!
    const micros = (blocks: number, scores: number): number => {
      const b = new Build()
      const x = b.f32(1, 2048)
      const top = Nn.linear(x, b.f32(scores, 2048)).max(-1).unsqueeze(-1)
      const { sink } = Program.make([
        b.out(Int8.quantise(Nn.linear(x, b.f32(32 * blocks, 2048)).mul(top)).contiguous())
      ])
      const found = kernels(scheduled(sink, { maxStorageBuffers: 8, fusion: stageAll }))
      return Math.max(...found.map(({ ast }) => cost.kernelMicros(ast).work))
    }
    const staging = (blocks: number): number => micros(blocks, 64) - micros(blocks, 1)
    // each block of 32 results is a workgroup, and each of them reads the 512 KiB of the scores' matrix
    assert.closeTo(staging(4096) / staging(2048), 2, 0.1)
  })

  it("costs every workgroup what it computes of them, along loops too that they do not depend on", () => {
    const cost = ofProfile(DeviceProfile.h200)!
    // each head's softmax beside a product with as many blocks of 32 rows
    const micros = (blocks: number): number => {
      const b = new Build()
      const weights = Nn.softmax(b.f32(64, 1, 512))
      const rows = b.f32(64, 32 * blocks, 512)
      const { sink } = Program.make([b.out(Int8.quantise(weights.mul(rows).sum(-1)).contiguous())])
      const found = kernels(scheduled(sink, { maxStorageBuffers: 8, fusion: stageAll }))
      return Math.max(...found.map(({ ast }) => cost.kernelMicros(ast).work))
    }
    assert.closeTo((micros(64) - micros(32)) / (micros(32) - micros(16)), 2, 0.2)
  })

  it("is not done where the values do not fit", () => {
    assert.deepStrictEqual(counts((b) => Nn.softmax(b.f32(4, 48)), { ...stageAll, maxWorkgroupBytes: 0 }), [3, 3])
  })

  it("is for GPUs", () => {
    assert.isUndefined(ofProfile(DeviceProfile.wasm))
  })
})

describe("a product of a few tokens", () => {
  it("costs the rows once, which a register tile of all tokens shares", () => {
    const cost = ofProfile(DeviceProfile.h200)!
    const micros = (tokens: number): number => {
      const b = new Build()
      const { sink } = Program.make([b.out(Nn.linear(b.f32(tokens, 1024), b.f32(2048, 1024)))])
      return Math.max(...kernels(scheduled(sink)).map(({ ast }) => cost.kernelMicros(ast).work))
    }
    // four rows share an activation; of tokens that are no tile, four share a weight
    const loads = (tokens: number, times: number): number => 2048 * 1024 * times + tokens * 1024 * (2048 / 4)
    assert.closeTo(micros(16) / micros(1), loads(16, 1) / loads(1, 1), 0.01)
    // two tiles share a load as other neighbours do; what fills no tiles has none
    assert.closeTo(micros(32) / micros(1), loads(32, 1) / loads(1, 1), 0.01)
    assert.closeTo(micros(48) / micros(1), loads(48, 48 / 4) / loads(1, 1), 0.01)
  })
})

describe("reductions of one kernel", () => {
  it("share no loop with one that they depend on through another's", () => {
    // the squares and the largest element share a loop; the sum of exponentials needs the largest element first
    const [, after] = counts((b) => {
      const x = b.f32(4, 32)
      const scale = x.mul(x).sum({ axis: -1, keepDims: true })
      const most = x.max({ axis: -1, keepDims: true })
      return x.sub(most).exp().sum({ axis: -1, keepDims: true }).add(scale)
    }, stageAll)
    assert.strictEqual(after, 1)
  })
})

describe("a launch of several kernels", () => {
  const kernel = (parts: Partial<KernelMicros>): KernelMicros => ({ wait: 2, work: 0, ...parts })

  it("waits once, and takes no less than any of its kernels", () => {
    const a = kernel({ wait: 3, work: 1, transfer: 4 })
    const b = kernel({ work: 5, transfer: 1 })
    // 3, then 6 of work beside 5 of transfer; of each one microsecond is not hidden
    assert.strictEqual(launchOf([a, b]), 3 + 6 + 1 + 1)
    for (const one of [a, b]) assert.isAtLeast(launchOf([a, b]), launchOf([one]))
    assert.isAtMost(launchOf([a, b]), launchOf([a]) + launchOf([b]))
  })

  it("hides no more of a kernel than if it ran alone: others give it no further waves", () => {
    const half = kernel({ work: 4, transfer: 4 })
    // the same kernel with twice the workgroups
    const whole = kernel({ work: 8, transfer: 8, waves: 2 })
    assert.strictEqual(launchOf([whole]), 2 + 8 + 4)
    assert.strictEqual(launchOf([half, half]), 2 + 8 + 8)
  })

  it("runs its kernels one after the other where they have many waves", () => {
    const a = kernel({ work: 1, transfer: 8, waves: 4 })
    const b = kernel({ work: 6, transfer: 1, waves: 2 })
    // 8 and then 6, less a fifth of the 5 that are hidden if all run at once; of each a part of a microsecond is not hidden
    assert.closeTo(launchOf([a, b]), 2 + 14 - 5 / 5 + 1 / 4 + 1 / 2, 1e-12)
    for (const one of [a, b]) assert.isAtLeast(launchOf([a, b]), launchOf([one]))
    assert.isAtMost(launchOf([a, b]), launchOf([a]) + launchOf([b]))
  })

  it("costs nothing more for a kernel that waits as long and needs what the others leave", () => {
    const loads = kernel({ transfer: 9 })
    assert.strictEqual(addedMicros([loads], kernel({ work: 3 })), 0)
    assert.strictEqual(addedMicros([loads], kernel({ wait: 5, work: 3 })), 3)
    assert.strictEqual(addedMicros([], loads), launchOf([loads]))
  })
})
