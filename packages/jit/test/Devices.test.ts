import { assert, describe, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { Arena, key } from "@tg/core-uop/UOp"
import { Device, type DeviceBuffer } from "@tg/runtime/Device"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import type { RandomProgram } from "@tg/tensor/Random"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { Effect } from "effect"
import { Jit } from "../src/Jit.ts"
import * as Devices from "./support/devices.ts"
import { forAll } from "./support/search.ts"
import { type Choose, difference, randomOpts, runTensor } from "./support/stages.ts"

/** Random opts that depend on the kernel alone, because a compiler keeps the program of a kernel it has seen. */
const randomly = (profile: DeviceProfile.DeviceProfile): Choose => (kernel) =>
  randomOpts(parseInt(key(kernel).slice(0, 7), 16), profile)(kernel)

const compare = (random: RandomProgram) =>
  Effect.map(Devices.run(random), (got) => difference(random, runTensor(random), got))

describe("a random program gives the values of its tensor graph", () => {
  const on = (name: string, runs: number, layer: ReturnType<typeof Devices.wasm> | typeof Devices.reference) =>
    it.live(name, () =>
      Effect.gen(function*() {
        assert.isAbove(yield* forAll({ runs }, compare), 0)
      }).pipe(Effect.provide(layer)))

  on("on the reference device", 100, Devices.reference)
  on("on wasm", 220, Devices.wasm())
  on("on wasm, divided among threads", 60, Devices.wasmThreads)
  on("on wasm, with random legal opts", 100, Devices.wasm(randomly(DeviceProfile.wasm)))
})

describe.skipIf((await availableAdapter()) === undefined)("on WebGPU, software or not", () => {
  const on = (name: string, runs: number, layer: ReturnType<typeof Devices.webgpu>) =>
    it.live(name, () =>
      Effect.gen(function*() {
        assert.isAbove(yield* forAll({ runs }, compare), 0)
      }).pipe(Effect.provide(layer)))

  const choose = randomly(DeviceProfile.webgpuDefault)
  // each program is some kernels for the driver to compile
  const times = process.env["TG_FULL"] === "1" ? 3 : 1
  on("with the heuristics", 20 * times, Devices.webgpu())
  on("with the heuristics, without subgroups", 8 * times, Devices.webgpu({ subgroups: false }))
  on("with random legal opts", 6 * times, Devices.webgpu({ choose }))
  on("with random legal opts, without subgroups", 8 * times, Devices.webgpu({ choose, subgroups: false }))

  it.live("runs loops that are longer than a grid dimension", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const jit = yield* Jit
      const arena = new Arena()
      // a prime, and a symbolic size: neither splits evenly
      const [length, most] = [70_001, 80_000]
      const n = Tensor.variable(arena, "n", 1, most)
      const buffer = (id: number, size: number) => Tensor.buffer(arena, id, { shape: [size], dtype: DType.u32 })
      const numbers = (size: Tensor.Extent) => Tensor.iota(arena, size).cast(DType.u32).mul(3)
      const { sink } = Program.make([
        Program.assign(buffer(0, length), numbers(length)),
        Program.assign(buffer(1, most).slice(0, 0, n), numbers(n))
      ])
      const buffers = new Map<number, DeviceBuffer>()
      for (const [id, size] of [[0, length], [1, most]] as const) {
        buffers.set(id, yield* device.allocate(4 * size, `buffer ${id}`))
      }
      yield* (yield* jit.prepare(sink, buffers)).run({ n: 66_007 })
      const read = (id: number) =>
        Effect.map(device.read(buffers.get(id)!), (bytes) => new Uint32Array(bytes.slice().buffer))
      assert.isTrue((yield* read(0)).every((x, i) => x === 3 * i))
      assert.isTrue((yield* read(1)).every((x, i) => x === (i < 66_007 ? 3 * i : 0)))
    }).pipe(Effect.scoped, Effect.provide(Devices.webgpu())))
})
