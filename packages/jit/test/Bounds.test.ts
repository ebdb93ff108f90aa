import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { Device } from "@tg/runtime/Device"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import * as TensorProgram from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { Effect } from "effect"
import { Jit, type JitError } from "../src/Jit.ts"
import * as Devices from "./support/devices.ts"

const hasWebGpu = (await availableAdapter()) !== undefined

const floats = (bytes: Uint8Array): ReadonlyArray<number> => [...new Float32Array(bytes.slice().buffer)]

const refused = <A, R>(what: Effect.Effect<A, JitError, R>) =>
  Effect.map(Effect.flip(what), (error): string => {
    assert.strictEqual(error._tag === "DeviceError" ? error.reason : error._tag, "BadArgument")
    return error.message
  })

/** out[i] = 2 x[i] for i below n, which is at most 8. */
const doubled = () => {
  const arena = new Arena()
  const n = Tensor.variable(arena, "n", 1, 8)
  const out = Tensor.buffer(arena, 0, { shape: [8], dtype: DType.f32, label: "out" })
  const x = Tensor.buffer(arena, 1, { shape: [8], dtype: DType.f32, label: "x" })
  return TensorProgram.make([TensorProgram.assign(out.slice(0, 0, n), x.slice(0, 0, n).mul(2))]).sink
}

const bounds = Effect.gen(function*() {
  const jit = yield* Jit
  const device = yield* Device
  const sink = doubled()
  const input = yield* device.allocate(32, "input")
  const output = yield* device.allocate(32, "output")
  const small = yield* device.allocate(4, "small")
  const neighbour = yield* device.allocate(1024, "neighbour")
  yield* device.write(input, new Uint8Array(Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8).buffer))
  for (const buffers of [[small, input], [output, small]] as const) {
    const message = yield* refused(jit.prepare(sink, new Map(buffers.entries())))
    assert.match(message, /\(id [01]\) has 32 bytes in the program, and small has \d+/)
  }
  const { run } = yield* jit.prepare(sink, new Map([[0, output], [1, input]]))
  for (const n of [70, 9, 0, -1, 2.5, NaN]) {
    assert.include(yield* refused(run({ n })), `n = ${n} is not an integer from 1 to 8`)
  }
  assert.match(yield* refused(run({})), /needs a value for the variable n/)
  assert.match(yield* refused(run({ n: 1, m: 1 })), /has no variable m; it has n/)
  assert.deepStrictEqual(floats(yield* device.read(output, 0, 32)), [0, 0, 0, 0, 0, 0, 0, 0])
  yield* run({ n: 3 })
  assert.deepStrictEqual(floats(yield* device.read(output, 0, 32)), [2, 4, 6, 0, 0, 0, 0, 0])
  assert.isTrue((yield* device.read(neighbour)).every((byte) => byte === 0))
})

const twice = Effect.gen(function*() {
  const jit = yield* Jit
  const device = yield* Device
  const memory = yield* device.allocate(32, "memory")
  for (const other of [{ shape: [8], dtype: DType.f32 }, { shape: [4], dtype: DType.u32 }]) {
    const arena = new Arena()
    const out = Tensor.buffer(arena, 0, { shape: [4], dtype: DType.f32 })
    const out2 = Tensor.buffer(arena, 2, other)
    const sink = TensorProgram.make([
      TensorProgram.assign(out, Tensor.buffer(arena, 1, { shape: [4], dtype: DType.f32 })),
      TensorProgram.assign(out2, Tensor.buffer(arena, 1, other))
    ]).sink
    const message = yield* refused(jit.prepare(sink, new Map([[0, memory], [1, memory], [2, memory]])))
    assert.match(message, /buffer 1 is f32 \[4\] in one place and \w+ \[\d\] in another/)
    assert.strictEqual(yield* refused(jit.compile(sink)), message)
  }
})

describe("what would reach beyond a buffer is refused before anything runs", () => {
  it.live("on the reference device", () => bounds.pipe(Effect.scoped, Effect.provide(Devices.reference)))
  it.live("on wasm", () => bounds.pipe(Effect.scoped, Effect.provide(Devices.wasm())))
  it.live("on wasm with threads", () => bounds.pipe(Effect.scoped, Effect.provide(Devices.wasmThreads)))
  it.live.skipIf(!hasWebGpu)("on WebGPU", () => bounds.pipe(Effect.scoped, Effect.provide(Devices.webgpu())))
})

describe("one buffer id with two shapes or types is refused", () => {
  it.live("on the reference device", () => twice.pipe(Effect.scoped, Effect.provide(Devices.reference)))
  it.live("on wasm", () => twice.pipe(Effect.scoped, Effect.provide(Devices.wasm())))
  it.live.skipIf(!hasWebGpu)("on WebGPU", () => twice.pipe(Effect.scoped, Effect.provide(Devices.webgpu())))
})
