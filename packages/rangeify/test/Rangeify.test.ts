import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { h200 } from "@tg/core-uop/DeviceProfile"
import { Checked } from "@tg/core-uop/Spec"
import { Arena, key, toposort } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { randomProgram } from "@tg/tensor/Random"
import { Effect } from "effect"
import { kernels, limitsOf, Rangeify, RangeifyError, schedule } from "../src/Rangeify.ts"
import { counting, print, type ScheduleCache } from "../src/ScheduleCache.ts"
import { Build, runSchedule, runTensor, scheduled } from "./support/programs.ts"

/** A chain of equal blocks, each with its own weights. */
const blocks = (b: Build, count: number): Tensor.Tensor => {
  let x = b.f32(1, 8)
  for (let i = 0; i < count; i++) {
    x = Program.call("block", [x, b.f32(8), b.f32(16, 8), b.f32(8, 16)], (y, norm, up, down) => [
      y!.add(Nn.linear(Nn.linear(Nn.rmsNorm(y!, norm!, 1e-5), up!).silu(), down!))
    ])[0]!
  }
  return x
}

const keysOf = (made: ReturnType<typeof scheduled>): ReadonlyArray<string> =>
  made.steps.map((s) =>
    `${s.name} ${s.kind === "kernel" ? key(s.ast) : ""} ${JSON.stringify(s.args.map((a) => a.kind))}`
  )

const reasonOf = (result: unknown): string => {
  assert.instanceOf(result, RangeifyError)
  return (result as RangeifyError).reason
}

describe("Rangeify", () => {
  it("schedules equal bodies once: their kernels are the same nodes", () => {
    const b = new Build()
    const { sink } = Program.make([b.out(blocks(b, 6))])
    const cache: ScheduleCache = new Map()
    const made = scheduled(sink, 8, cache)
    assert.strictEqual(cache.size, 1)
    const asts = new Set(kernels(made).slice(0, -1).map((k) => k.ast))
    assert.strictEqual((made.steps.length - 1) % 6, 0)
    assert.strictEqual(asts.size, (made.steps.length - 1) / 6)
    const got = runSchedule(sink, made)
    // a norm's factor is applied behind the sums of 8 and 16 products, and rounds them there; six blocks in a row
    for (const [id, data] of runTensor(sink)) {
      data.forEach((x, i) => assert.closeTo(got.get(id)![i]!, x, 1e-5 * Math.max(1, Math.abs(x)), `buffer ${id}[${i}]`))
    }
  })

  it("does not take the schedule of a body whose values have other names", () => {
    const cache: ScheduleCache = new Map()
    const namesWith = (label: string) => {
      const b = new Build()
      const [y] = Program.call("block", [b.f32(1, 8), b.f32(16, 8)], (x, w) => [Nn.linear(x!, w!).label(label)])
      return scheduled(Program.make([b.out(y!)]).sink, 8, cache).steps.map(({ name }) => name)
    }
    assert.deepStrictEqual([namesWith("up")[0], namesWith("gate")[0], namesWith("up")[0]], [
      "up_16",
      "gate_16",
      "up_16"
    ])
    assert.strictEqual(cache.size, 2)
  })

  it("finds the schedule of a body in the cache, for another program", () => {
    const cache: ScheduleCache = new Map()
    const b = new Build()
    const first = scheduled(Program.make([b.out(blocks(b, 1))]).sink, 8, cache)
    const c = new Build()
    const second = scheduled(Program.make([c.out(blocks(c, 3))]).sink, 8, cache)
    assert.strictEqual(cache.size, 1)
    assert.strictEqual(kernels(second)[0]!.ast, kernels(first)[0]!.ast)
  })

  it.live("tells what its cache saves: of six equal blocks five, and in the next program all", () =>
    counting((counts) =>
      Effect.gen(function*() {
        const stage = yield* Rangeify
        for (const hits of [5, 11]) {
          const b = new Build()
          yield* stage.schedule(Program.make([b.out(blocks(b, 6))]).sink, limitsOf(h200))
          const now = yield* counts
          assert.deepStrictEqual([now.bodies, now.hits, now.misses], [1, hits, 1])
          assert.isAbove(now.savedMillis, 0)
        }
        assert.match(print(yield* counts), /^1 body, 11 hits, 1 misses, \d+ ms saved$/)
      })
    ).pipe(Effect.provide(Rangeify.layer)))

  it("does not share schedules between limits", () => {
    const cache: ScheduleCache = new Map()
    for (const limit of [4, 8]) {
      const b = new Build()
      scheduled(Program.make([b.out(blocks(b, 2))]).sink, limit, cache)
    }
    assert.strictEqual(cache.size, 2)
  })

  it("gives the same schedule for the same program, in any arena", () => {
    for (let seed = 0; seed < 40; seed++) {
      const [a, b] = [randomProgram(seed, 24), randomProgram(seed, 24)]
      assert.deepStrictEqual(keysOf(scheduled(a.program.sink)), keysOf(scheduled(b.program.sink)), `seed ${seed}`)
    }
  })

  it("runs a program over 20 buffers on a device that binds 8", () => {
    const b = new Build()
    const inputs = Array.from({ length: 20 }, () => b.f32(3, 4))
    const { sink } = Program.make([b.out(inputs.reduce((x, y, i) => i % 3 === 0 ? x.mul(y) : x.add(y.flip(0))))])
    const made = scheduled(sink, 8)
    assert.isAtLeast(made.steps.length, 3)
    for (const step of made.steps) assert.isAtMost(step.args.length, 8)
    assert.deepStrictEqual(runSchedule(sink, made), runTensor(sink))
  })

  it("names what binds too many buffers, and what to do", () => {
    const b = new Build()
    const { sink } = Program.make([b.out(b.f32(4).add(b.f32(4)).label("sum_of_both"))])
    const error = schedule(sink, { maxStorageBuffers: 2 })
    assert.strictEqual(reasonOf(error), "TooManyBuffers")
    assert.strictEqual(
      (error as RangeifyError).message,
      "sum_of_both reads and writes 3 buffers, and the device binds 2 at once; materialise a part of it with contiguous()"
    )
  })

  describe("functions", () => {
    const [call, assign] = [Program.call, Program.assign]
    const identity = (x: Tensor.Tensor): Tensor.Tensor => call("identity", [x], (p) => [p!])[0]!
    const bodies: Readonly<Record<string, (b: Build) => ReadonlyArray<Tensor.Tensor>>> = {
      "an argument as the result": (b) => [b.out(identity(b.f32(4)))],
      "a computed argument as the result": (b) => [b.out(identity(b.f32(4).mul(2)))],
      "a view of an argument": (b) => [b.out(call("f", [b.f32(4, 2)], (p) => [p!.transpose()])[0]!)],
      "the result of another call": (b) => [b.out(call("f", [b.f32(4)], (p) => [identity(p!.add(1))])[0]!)],
      "one value as two results": (b) => {
        const [v, w] = call("f", [b.f32(4)], (p) => [p!.mul(2), p!.mul(2)])
        return [b.out(v!.add(w!))]
      },
      "a result that is a view of another": (b) => {
        const [v, w] = call("f", [b.f32(4, 2)], (p) => [p!.mul(2), p!.mul(2).transpose().reshape([4, 2])])
        return [b.out(v!.add(w!))]
      },
      "a constant result": (b) => [b.out(call("f", [b.f32(4)], (p) => [Tensor.full(p!.arena, [3], 2)])[0]!)],
      "a constant argument": (b) => [b.out(call("f", [Tensor.full(b.arena, [3], 2)], (p) => [p!.mul(3)])[0]!)],
      "one buffer as two arguments": (b) => {
        const x = b.f32(4)
        return [b.out(call("f", [x, x], (p, q) => [p!.add(q!.flip(0))])[0]!)]
      },
      "an argument after a write to it": (b) => {
        const [v, effect] = call("f", [b.f32(4), b.f32(4)], (p, x) => {
          const write = assign(p!, x!)
          return [Program.after(p!, [write]), write]
        })
        return [b.out(v!), effect!]
      }
    }
    for (const [name, make] of Object.entries(bodies)) {
      it(`gives ${name}`, () => {
        const { sink } = Program.make(make(new Build()))
        assert.deepStrictEqual(runSchedule(sink), runTensor(sink))
      })
    }

    it("refuses a buffer that a body knows by two names and writes", () => {
      const b = new Build()
      const x = b.f32(4)
      const [v, effect] = call("block", [x, x], (p, q) => [q!.flip(0), assign(p!, p!.add(1))])
      const error = schedule(Program.make([b.out(v!), effect!]).sink, { maxStorageBuffers: 8 })
      assert.strictEqual(reasonOf(error), "InvalidGraph")
      assert.include((error as RangeifyError).message, "block is given one buffer as arguments 1 and 0, and writes it")
    })
  })

  it("leaves no movement operation in a kernel", () => {
    const moving = new Set(["RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP", "GATHER", "IOTA"])
    for (let seed = 0; seed < 40; seed++) {
      for (const { ast } of kernels(scheduled(randomProgram(seed, 24).program.sink))) {
        assert.isFalse(toposort(ast).some((n) => moving.has(n.op)))
      }
    }
  })

  it("passes hand-written kernels on, with their arguments", () => {
    const b = new Build()
    const [x, y] = [b.f32(4), b.f32(4)]
    const kernel = { name: "by_hand", writes: [1], cost: { bytes: 32, flops: 0 }, reference: () => undefined }
    const effect = Program.custom(kernel, [x, y])
    const made = scheduled(Program.make([b.out(Program.after(y, [effect]).add(1))]).sink)
    assert.deepStrictEqual(made.steps.map((s) => [s.kind, s.name]), [["custom", "by_hand"], ["kernel", "store_4"]])
    assert.deepStrictEqual(made.steps[0]!.args, [{ kind: "buffer", node: x.node }, { kind: "buffer", node: y.node }])
  })

  describe("service", () => {
    it.effect("schedules, and remembers bodies", () =>
      Effect.gen(function*() {
        const rangeify = yield* Rangeify
        const b = new Build()
        const { sink } = Program.make([b.out(blocks(b, 2))])
        const [first, second] = [
          yield* rangeify.schedule(sink, { maxStorageBuffers: 8 }),
          yield* rangeify.schedule(sink, { maxStorageBuffers: 8 })
        ]
        assert.strictEqual(kernels(first)[0]!.ast, kernels(second)[0]!.ast)
      }).pipe(Effect.provide(Rangeify.layer)))

    it.effect("refuses what is not a tensor graph", () =>
      Effect.gen(function*() {
        const rangeify = yield* Rangeify
        const arena = new Arena()
        const sink = arena.make("SINK", DType.none, [arena.make("BARRIER", DType.none)])
        const error = yield* Effect.flip(rangeify.schedule(sink, { maxStorageBuffers: 8 }))
        assert.strictEqual(error.reason, "InvalidGraph")
        assert.include(error.message, "BARRIER is not allowed")
        const unchecked = rangeify.schedule(arena.make("SINK", DType.none), { maxStorageBuffers: 8 })
        assert.deepStrictEqual((yield* unchecked.pipe(Effect.provideService(Checked, false))).steps, [])
      }).pipe(Effect.provide(Rangeify.layer)))

    it.effect("fails with the stage's own error", () =>
      Effect.gen(function*() {
        const rangeify = yield* Rangeify
        const b = new Build()
        const { sink } = Program.make([b.out(b.f32(4).add(b.f32(4)))])
        const error = yield* Effect.flip(rangeify.schedule(sink, { maxStorageBuffers: 2 }))
        assert.strictEqual(error.reason, "TooManyBuffers")
      }).pipe(Effect.provide(Rangeify.layer)))
  })
})
