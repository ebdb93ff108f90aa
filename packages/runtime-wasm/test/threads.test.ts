import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { type Program, RenderError } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import { Device, type DeviceError } from "@tg/runtime/Device"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Predicate } from "effect"
import { Worker } from "node:worker_threads"
import * as Wasm from "@tg/codegen-wasm/Wasm"
import { kernel } from "../../codegen-wasm/test/support/linear.ts"
import { Cell } from "../src/internal/attend.ts"
import { Gate, lineBytes } from "../src/internal/driver.ts"
import * as NodeThreads from "../src/NodeThreads.ts"
import { type Thread, Threads, type ThreadsShape } from "../src/Threads.ts"
import * as WasmDevice from "../src/WasmDevice.ts"

const render = (linear: UOp): Effect.Effect<Program> =>
  Effect.sync(() => {
    const program = Wasm.render("kernel", linear, Wasm.assembler)
    if (program instanceof RenderError) throw program
    return program
  })

const count = 4096
/** out[i] = 3 in[i] + 1, with many instructions for each. */
const affine = kernel((b) => {
  const out = b.param(0, DType.i32, count)
  const x = b.param(1, DType.i32, count)
  b.loop(count, "GLOBAL", (i) => {
    const sum = b.register(b.add(Expr.constant(b.arena, DType.i32, 1)))
    b.loop(3, "REDUCE", () => b.accumulate("ADD", sum, b.load(x, i)))
    b.store(out, i, sum)
  })
})

/** out[i] = n */
const plus = (n: number) =>
  kernel((b) => {
    const out = b.param(0, DType.i32, count)
    const x = b.param(1, DType.i32, count)
    b.loop(count, "GLOBAL", (i) => {
      const sum = b.register(b.add(Expr.constant(b.arena, DType.i32, n)))
      b.loop(3, "REDUCE", () => b.accumulate("ADD", sum, b.load(x, i)))
      b.store(out, i, sum)
    })
  })

const four = NodeThreads.layer(Worker, 4)
const device = WasmDevice.layer().pipe(Layer.provide(four))
const numbers = (bytes: Uint8Array): Int32Array => new Int32Array(bytes.slice().buffer)

describe("threads", () => {
  it.live("take parts of steps, whose launches stay in order", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const joined = yield* Joined
      const [a, b] = [yield* device.allocate(4 * count, "a"), yield* device.allocate(4 * count, "b")]
      const executable = yield* device.load(yield* render(affine))
      yield* device.write(a, new Uint8Array(new Int32Array(count).fill(1).buffer))
      const there = { executable, buffers: [b, a] }
      const back = { executable, buffers: [a, b] }
      const plan = yield* device.plan([there, back, there, back])
      let value = 1
      // others are needed: how soon they are there is the host's business
      const started = performance.now()
      const isWaiting = () => joined() === 0 && performance.now() - started < 300_000
      for (let round = 0; round < 3 || isWaiting(); round++) {
        yield* plan.run({})
        for (let i = 0; i < 4; i++) value = Math.imul(3, value) + 1
        assert.isTrue(numbers(yield* device.read(a)).every((x) => x === value), `round ${round}`)
      }
      assert.isAbove(joined(), 0)
    }).pipe(Effect.provide(seen)))

  it.live("give the same numbers as one thread does", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const [a, b] = [yield* device.allocate(4 * count, "a"), yield* device.allocate(4 * count, "b")]
      const executable = yield* device.load(yield* render(affine))
      yield* device.write(a, new Uint8Array(Int32Array.from({ length: count }, (_, i) => i).buffer))
      const there = { executable, buffers: [b, a] }
      const back = { executable, buffers: [a, b] }
      const plan = yield* device.plan([there, back, there, back, there])
      yield* plan.run({})
      assert.deepStrictEqual(
        numbers(yield* device.read(b)),
        Int32Array.from({ length: count }, (_, i) => 243 * i + 121)
      )
    }).pipe(Effect.provide(device)))

  it.live("do not take part in steps of kernels that they have not received", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const [a, b] = [yield* device.allocate(4 * count, "a"), yield* device.allocate(4 * count, "b")]
      // every step has a new kernel, while the threads are looking for work
      for (let round = 0; round < 300; round++) {
        const executable = yield* device.load(yield* render(plus(round)))
        const plan = yield* device.plan([{ executable, buffers: [b, a] }])
        yield* plan.run({})
        yield* plan.run({})
        assert.isTrue(numbers(yield* device.read(b)).every((x) => x === round), `round ${round}`)
      }
    }).pipe(Effect.provide(device)))

  it.live("see the steps of several plans, of which one is longer", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const [a, b] = [yield* device.allocate(4 * count, "a"), yield* device.allocate(4 * count, "b")]
      const executable = yield* device.load(yield* render(affine))
      const there = { executable, buffers: [b, a] }
      const back = { executable, buffers: [a, b] }
      let value = 0
      for (let pairs = 1; pairs < 40; pairs++) {
        const plan = yield* device.plan(Array.from({ length: pairs }, () => [there, back]).flat())
        for (let round = 0; round < 3; round++) {
          yield* plan.run({})
          for (let i = 0; i < 2 * pairs; i++) value = Math.imul(3, value) + 1 | 0
        }
        assert.isTrue(numbers(yield* device.read(a)).every((x) => x === value), `${pairs} pairs`)
      }
    }).pipe(Effect.provide(device)))

  it.live("lose the device when one does not come back from its part", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const [a, b] = [yield* device.allocate(4 * count, "a"), yield* device.allocate(4 * count, "b")]
      const plan = yield* device.plan([{ executable: yield* device.load(yield* render(affine)), buffers: [b, a] }])
      const started = performance.now()
      let error: DeviceError | undefined
      while (error === undefined && performance.now() - started < 300_000) {
        error = yield* plan.run({}).pipe(Effect.as(undefined), Effect.catch(Effect.succeed))
      }
      assert.strictEqual(error?.reason, "DeviceLost")
      assert.match(error!.message, /did not finish its part of kernel within 50 ms/)
      assert.strictEqual((yield* Effect.flip(plan.run({}))).message, error!.message)
    }).pipe(Effect.provide(WasmDevice.layer().pipe(Layer.provide(Layer.succeed(Threads, vanishing))))))

  it.live("report a trap, and go on", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const far = kernel((b) => {
        const out = b.param(0, DType.i32)
        b.loop(2 ** 20, "GLOBAL", (i) => b.store(out, Expr.add(Expr.mul(i, 64), 2 ** 28), b.load(out, 0)))
      })
      const a = yield* device.allocate(4 * count, "a")
      const b = yield* device.allocate(4 * count, "b")
      const broken = yield* device.plan([{ executable: yield* device.load(yield* render(far)), buffers: [a] }])
      const good = yield* device.plan([{ executable: yield* device.load(yield* render(affine)), buffers: [b, a] }])
      for (let round = 0; round < 3; round++) {
        assert.match((yield* Effect.flip(broken.run({}))).message, /kernel trapped: RuntimeError/)
        yield* good.run({})
        assert.isTrue(numbers(yield* device.read(b)).every((x) => x === 1))
      }
    }).pipe(Effect.provide(device)))

  it.live("are started by the first launch that is worth it, and end with the Scope", () =>
    Effect.gen(function*() {
      const events: Array<string> = []
      const counting = Layer.succeed(Threads, {
        count: 3,
        start: () => {
          events.push("start")
          return { post: () => {}, end: async () => void events.push("end") }
        }
      })
      yield* Effect.gen(function*() {
        const device = yield* Device
        const buffers = [yield* device.allocate(4 * count, "a"), yield* device.allocate(4 * count, "b")]
        const tiny = kernel((b) => b.loop(8, "GLOBAL", (i) => b.store(b.param(0), i, b.load(b.param(1), i))))
        const small = yield* device.plan([{ executable: yield* device.load(yield* render(tiny)), buffers }])
        yield* small.run({})
        assert.deepStrictEqual(events, [])
        const large = yield* device.plan([{ executable: yield* device.load(yield* render(affine)), buffers }])
        // nobody helps: the calling thread does it all
        yield* large.run({})
        assert.isTrue(numbers(yield* device.read(buffers[0]!)).every((x) => x === 1))
        assert.deepStrictEqual(events, ["start", "start"])
      }).pipe(Effect.provide(WasmDevice.layer().pipe(Layer.provide(counting))))
      assert.deepStrictEqual(events, ["start", "start", "end", "end"])
    }))

  it.effect("are not used with a memory that is not shared", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const program = Wasm.render("kernel", affine, Wasm.assembler, { memory: "own" })
      if (program instanceof RenderError) throw program
      const [a, b] = [yield* device.allocate(4 * count, "a"), yield* device.allocate(4 * count, "b")]
      const plan = yield* device.plan([{ executable: yield* device.load(program), buffers: [a, b] }])
      yield* plan.run({})
      assert.isTrue(numbers(yield* device.read(a)).every((x) => x === 1))
      const shared = yield* Effect.flip(device.load(yield* render(affine)))
      assert.strictEqual(shared.reason, "ProgramRejected")
    }).pipe(Effect.provide(WasmDevice.layer({ memory: "own" }).pipe(Layer.provide(four)))))
})

/** How often other threads have taken part in a step. */
class Joined extends Context.Service<Joined, () => number>()("test/Joined") {}

/** Four threads, of which it is seen whether they took part. */
const seen = Layer.unwrap(Effect.gen(function*() {
  const threads = yield* Threads
  let cells = new Int32Array(Cell.joined + 1)
  const start = (source: string): Thread => {
    const thread = threads.start(source)
    const post = (message: unknown) => {
      if (Predicate.hasProperty(message, "cells")) cells = message.cells as Int32Array<ArrayBuffer>
      thread.post(message)
    }
    return { ...thread, post }
  }
  return Layer.merge(
    WasmDevice.layer().pipe(Layer.provide(Layer.succeed(Threads, { ...threads, start }))),
    Layer.succeed(Joined, () => Atomics.load(cells, Cell.joined))
  )
})).pipe(Layer.provide(four))

/** A thread that takes a part of the first step it sees, and ends. */
const vanishing: ThreadsShape = {
  count: 2,
  lateMillis: 50,
  start: () => {
    const taking = `
      require("node:worker_threads").parentPort.once("message", ({ cells, memory }) => {
        for (let taken = 0; taken <= 0;) {
          if (Atomics.load(cells, ${Cell.turn}) % 2 === 0) continue
          const gate = new Int32Array(memory.buffer, cells[${Cell.table}] + ${lineBytes}, ${Gate.undone})
          taken = Atomics.load(gate, ${Gate.untaken})
          if (taken > 0 && Atomics.compareExchange(gate, ${Gate.untaken}, taken, taken - 1) !== taken) taken = 0
        }
      })`
    const worker = new Worker(taking, { eval: true })
    return { post: (message) => worker.postMessage(message, []), end: async () => void await worker.terminate() }
  }
}
