import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { type Program, RenderError } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import { Device } from "@tg/runtime/Device"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Worker } from "node:worker_threads"
import * as Wasm from "@tg/codegen-wasm/Wasm"
import { kernel } from "../../codegen-wasm/test/support/linear.ts"
import { Crew } from "../src/internal/Crew.ts"
import type { Run } from "../src/internal/part.ts"
import * as NodeThreads from "../src/NodeThreads.ts"
import { Threads } from "../src/Threads.ts"
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

const four = NodeThreads.layer(Worker, 4)
const device = WasmDevice.layer().pipe(Layer.provide(four))
const numbers = (bytes: Uint8Array): Int32Array => new Int32Array(bytes.slice().buffer)

describe("threads", () => {
  it.live("take parts of launches, and launches stay in order", () =>
    Effect.gen(function*() {
      const { crew, memory } = yield* crewOfFour
      const { code } = yield* render(affine)
      const module = yield* Effect.promise(() => WebAssembly.compile(code as Uint8Array<ArrayBuffer>))
      const number = crew.add(module)
      const run = new WebAssembly.Instance(module, { env: { memory } }).exports["run"] as Run
      const words = new Int32Array(memory.buffer)
      words.fill(1, 0, count)
      const launch = (from: number, to: number) =>
        assert.isUndefined(crew.run({ run, kernel: number, args: [to, from], iterations: count, size: 16 }))
      let value = 1
      // others are needed: how soon they are there is the host's business
      const started = performance.now()
      const isWaiting = () => crew.partsOfOthers === 0 && performance.now() - started < 20_000
      for (let round = 0; round < 3 || isWaiting(); round++) {
        launch(0, 4 * count)
        launch(4 * count, 0)
        value = Math.imul(3, Math.imul(3, value) + 1) + 1
        assert.isTrue(words.subarray(0, count).every((x) => x === value), `round ${round}`)
      }
      assert.isAbove(crew.partsOfOthers, 0)
    }))

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

  it.live("do not take parts of kernels that they have not received", () =>
    Effect.gen(function*() {
      const { crew, memory } = yield* crewOfFour
      const { code } = yield* render(affine)
      // every launch is of a new kernel, while the threads are looking for work
      for (let round = 0; round < 300; round++) {
        const module = new WebAssembly.Module(code as Uint8Array<ArrayBuffer>)
        const run = new WebAssembly.Instance(module, { env: { memory } }).exports["run"] as Run
        const kernel = crew.add(module)
        const launch = { run, kernel, args: [0, 4 * count], iterations: count, size: 16 }
        assert.isUndefined(crew.run(launch))
        assert.isUndefined(crew.run(launch))
      }
    }))

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

const crewOfFour = Effect.gen(function*() {
  const threads = yield* Effect.provide(Threads, four)
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true })
  const crew = yield* Effect.acquireRelease(
    Effect.sync(() => new Crew(threads, memory)),
    (crew) => Effect.promise(() => crew.end())
  )
  return { crew, memory }
})
