import { assert, describe, it } from "@effect/vitest"
import * as Bounds from "@tg/core-uop/Bounds"
import { wasm, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { signature } from "@tg/core-uop/Program"
import { key, rangeArg, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { randomProgram } from "@tg/tensor/Random"
import type * as Tensor from "@tg/tensor/Tensor"
import type { FusionCost } from "../src/Fusion.ts"
import { members } from "../src/Horizontal.ts"
import { planMemory } from "../src/Memory.ts"
import { kernels, limitsOf } from "../src/Rangeify.ts"
import type { ScheduleCache } from "../src/ScheduleCache.ts"
import type { Schedule } from "../src/Schedule.ts"
import { graphs } from "./support/graphs.ts"
import { Build, joined, runSchedule, scheduled } from "./support/programs.ts"

const namesOf = (made: Schedule): ReadonlyArray<string> => made.steps.map((step) => step.name)

/** Two products of the same rows, as of a query and a key. */
const twoProducts = (b: Build, x: Tensor.Tensor): ReadonlyArray<Tensor.Tensor> => [
  b.out(Nn.linear(x, b.f32(16, 8)).label("query")),
  b.out(Nn.linear(x, b.f32(4, 8)).label("key"))
]

/** A chain of 64, 512 and 512 products, and a sum at its end with what is computed beside it. */
const chainBeside = (b: Build, beside: Tensor.Tensor): ReadonlyArray<Tensor.Tensor> => {
  const first = Nn.linear(b.f32(1, 8), b.f32(8, 8)).contiguous().label("first")
  const second = Nn.linear(first, b.f32(64, 8)).contiguous().label("second")
  const third = Nn.linear(second, b.f32(8, 64)).contiguous().label("third")
  return [b.out(third.add(beside.contiguous().label("beside"))).label("sum")]
}

const product = (loops: ReadonlyArray<UOp>): number => loops.reduce((n, loop) => n * Bounds.of(loop.src[0]!).max, 1)

/** Elements that a kernel stores. */
const outputsOf = (kernel: UOp): number => product(kernel.src.at(-1)!.src.slice(1))

/** All loops of a kernel together. */
const iterationsOf = (kernel: UOp): number => product(toposort(kernel).filter((node) => node.op === "RANGE"))

/** A device that computes, one launch after the other. */
const byIterations: FusionCost = {
  key: "by iterations",
  maxWorkgroupBytes: 0,
  kernelMicros: (kernel) => ({ wait: 0, work: iterationsOf(kernel) })
}

/** The same values as kernel by kernel, and in no launch one member touches what another one writes. */
const check = (sink: UOp, made: Schedule, vars = { n: 3, at: 2 }): void => {
  const got = runSchedule(sink, made, vars)
  for (const [id, data] of runSchedule(sink, scheduled(sink), vars)) assert.deepStrictEqual(got.get(id), data)
  for (const step of kernels(made)) {
    const accesses = members(step.ast).map(({ ast, slots }) =>
      signature(ast).bindings.map(({ access, slot }) => ({ access, slot: slots[slot]! }))
    )
    accesses.forEach((own, i) => {
      const others = accesses.filter((_, j) => j !== i).flat()
      for (const { access, slot } of own) {
        if (access === "write") assert.isFalse(others.some((other) => other.slot === slot), step.name)
      }
    })
  }
}

describe("joined kernels", () => {
  it("are independent kernels of one level, the one with the most work first", () => {
    const b = new Build()
    const { sink } = Program.make(twoProducts(b, b.f32(1, 8)))
    const made = joined(sink)
    assert.deepStrictEqual(namesOf(made), ["query_16+key_4"])
    const { ast, args } = kernels(made)[0]!
    // the rows are one argument
    assert.strictEqual(args.length, 5)
    assert.deepStrictEqual(signature(ast).bindings.map(({ access }) => access), [
      "write",
      "read",
      "read",
      "write",
      "read"
    ])
    check(sink, made)
  })

  it("stay apart on a device that runs one thread", () => {
    const b = new Build()
    assert.deepStrictEqual(namesOf(scheduled(Program.make(twoProducts(b, b.f32(1, 8))).sink)), ["query_16", "key_4"])
    assert.isFalse(limitsOf(wasm).joinsKernels)
    assert.isTrue(limitsOf(webgpuDefault).joinsKernels)
  })

  it("lengthen no chain, and wait for a launch that takes as long", () => {
    const beside: ReadonlyArray<readonly [number, string]> = [
      [8, "first_8+beside_8,second_64,third_8,sum_8"],
      [64, "first_8,second_64+beside_8,third_8,sum_8"],
      [128, "first_8,beside_8+second_64,third_8,sum_8"]
    ]
    for (const [length, names] of beside) {
      const b = new Build()
      const { sink } = Program.make(chainBeside(b, Nn.linear(b.f32(1, length), b.f32(8, length))))
      const made = scheduled(sink, { maxStorageBuffers: 8, joinsKernels: true, fusion: byIterations })
      assert.strictEqual(namesOf(made).join(), names)
      check(sink, made)
    }
  })

  it("join the launch to which they add least: one that loads hides one that computes", () => {
    const b = new Build()
    const { sink } = Program.make(chainBeside(b, Nn.linear(b.f32(1, 128), b.f32(8, 128))))
    const fusion: FusionCost = {
      ...byIterations,
      key: "64 rows are loaded, others computed",
      kernelMicros: (kernel) => outputsOf(kernel) === 64 ? { wait: 1, work: 0, transfer: 9 } : { wait: 1, work: 9 }
    }
    const made = scheduled(sink, { maxStorageBuffers: 8, joinsKernels: true, fusion })
    assert.strictEqual(namesOf(made).join(), "first_8,second_64+beside_8,third_8,sum_8")
    check(sink, made)
  })

  it("are not moved for a gain that the costs cannot tell from none", () => {
    const launchesIf = (wait: number): string => {
      const b = new Build()
      const { sink } = Program.make(chainBeside(b, Nn.linear(b.f32(1, 128), b.f32(8, 128))))
      // the 64 rows wait as long as what is beside the chain does, all others less
      const kernelMicros: FusionCost["kernelMicros"] = (kernel) => {
        if (iterationsOf(kernel) === 1024) return { wait, work: 4 }
        return { wait: outputsOf(kernel) === 64 ? wait : 1, work: 5 }
      }
      const fusion = { ...byIterations, key: `waits ${wait}`, kernelMicros }
      return namesOf(scheduled(sink, { maxStorageBuffers: 8, joinsKernels: true, fusion })).join()
    }
    // 1% of the launch, and 10%
    assert.strictEqual(launchesIf(1.1), "first_8+beside_8,second_64,third_8,sum_8")
    assert.strictEqual(launchesIf(2), "first_8,second_64+beside_8,third_8,sum_8")
  })

  it("bind no more buffers than the device can", () => {
    const b = new Build()
    const { sink } = Program.make(Array.from({ length: 7 }, () => b.out(b.f32(8).mul(2))))
    for (const limit of [4, 6, 8]) {
      const made = joined(sink, limit)
      assert.strictEqual(made.steps.length, Math.ceil(7 / Math.floor(limit / 2)))
      for (const step of made.steps) assert.isAtMost(step.args.length, limit)
      check(sink, made)
    }
  })

  it("are apart when one overwrites what the other one reads", () => {
    const b = new Build()
    const [state, row] = [b.f32(4, 4), b.f32(1, 4)]
    const write = Program.assign(state.slice(0, 1, 1), row.mul(2))
    const before = joined(Program.make([b.out(state.sum(0)), write]).sink)
    assert.strictEqual(before.steps.length, 2)
    const { sink } = Program.make([b.out(Program.after(state, [write]).sum(0)), write])
    assert.strictEqual(joined(sink).steps.length, 2)
    check(sink, joined(sink))
  })

  it("have temporaries of their own while they run", () => {
    const b = new Build()
    const x = b.f32(8)
    const halves = [2, 3, 4].map((n) => x.mul(n).contiguous())
    const { sink } = Program.make([b.out(halves.reduce((sum, half) => sum.add(half.flip(0))))])
    const made = joined(sink)
    assert.strictEqual(made.steps.length, 2)
    assert.strictEqual(new Set(planMemory(made).blockOf).size, 3)
    check(sink, made)
  })

  for (const [name, graph] of Object.entries(graphs)) {
    it(`keep the values of ${name}`, () => {
      const { sink } = Program.make(graph(new Build()))
      check(sink, joined(sink))
    })
  }

  it("keep the values of random programs", () => {
    let saved = 0
    for (let seed = 0; seed < 60; seed++) {
      const { program: { sink }, vars } = randomProgram(seed, 24)
      const made = joined(sink)
      check(sink, made, { ...vars, n: vars["n"] ?? 0, at: 0 })
      const all = made.steps.length === 0 ? [] : kernels(made).flatMap(({ ast }) => members(ast))
      assert.strictEqual(all.length, scheduled(sink).steps.length)
      saved += all.length - made.steps.length
    }
    assert.isAbove(saved, 60)
  })

  it("are the same nodes in equal bodies, and calls stay as they are", () => {
    const b = new Build()
    const cache: ScheduleCache = new Map()
    const block = (x: Tensor.Tensor): Tensor.Tensor =>
      Program.call("block", [x, b.f32(8, 8), b.f32(8, 8)], (y, v, w) => [
        Nn.linear(y!, v!).contiguous().label("v").add(Nn.linear(y!, w!).contiguous().label("w").flip(1))
      ])[0]!
    const { sink } = Program.make([b.out(block(block(b.f32(1, 8))))])
    const made = joined(sink, 8, cache)
    assert.deepStrictEqual(namesOf(made).slice(0, 4), ["v_8+w_8", "v_8", "v_8+w_8", "v_8"])
    assert.strictEqual(kernels(made)[0]!.ast, kernels(made)[2]!.ast)
    assert.strictEqual(scheduled(sink, 8, cache).steps.length, made.steps.length + 2)
    check(sink, made)
  })
})

describe("members", () => {
  it("are kernels with loops of their own, numbered from 0", () => {
    const b = new Build()
    const { sink } = Program.make(twoProducts(b, b.f32(1, 8)))
    const { ast } = kernels(joined(sink))[0]!
    const parts = members(ast)
    assert.strictEqual(parts.length, 2)
    // the rows are slot 1 of both
    assert.deepStrictEqual(parts.map(({ slots }) => slots), [[0, 1, 2], [3, 1, 4]])
    for (const { ast: part } of parts) {
      const ids = toposort(part).filter((node) => node.op === "RANGE").map((node) => rangeArg(node).id)
      assert.deepStrictEqual(ids.toSorted(), [0, 1])
    }
    // each is the kernel that it would be alone
    assert.deepStrictEqual(parts.map((part) => key(part.ast)), kernels(scheduled(sink)).map((step) => key(step.ast)))
    assert.deepStrictEqual(members(parts[0]!.ast), [{ ast: parts[0]!.ast, slots: [0, 1, 2] }])
  })
})
