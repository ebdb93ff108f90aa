import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { type FusionCost, FusionCosts } from "@tg/rangeify/Fusion"
import { Rangeify } from "@tg/rangeify/Rangeify"
import { Device, type DeviceBuffer } from "@tg/runtime/Device"
import * as Reference from "@tg/runtime/Reference"
import { randomProgram } from "@tg/tensor/Random"
import * as Nn from "@tg/tensor/Nn"
import * as TensorProgram from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { Effect, Layer } from "effect"
import { Compiler } from "../src/Compiler.ts"
import { Jit, launchCount } from "../src/Jit.ts"
import type { ExecutionPlan } from "../src/Plan.ts"
import { blocks, contents, filled } from "./support/blocks.ts"
import * as Devices from "./support/devices.ts"
import { initial } from "./support/stages.ts"
import { bytesOf, upload } from "./support/upload.ts"

const floats = (bytes: Uint8Array): ReadonlyArray<number> => [...new Float32Array(bytes.slice().buffer)]

const download = (buffers: ReadonlyMap<number, DeviceBuffer>) =>
  Effect.gen(function*() {
    const device = yield* Device
    return yield* Effect.forEach([...buffers], ([id, buffer]) =>
      Effect.map(device.read(buffer), (bytes) => [id, [...bytes]] as const))
  })

/** Runs a plan one launch at a time, each as a plan of its own. */
const kernelByKernel = (
  plan: ExecutionPlan,
  buffers: ReadonlyMap<number, DeviceBuffer>,
  vars: Readonly<Record<string, number>>
) =>
  Effect.gen(function*() {
    const device = yield* Device
    const memory = yield* Effect.forEach(plan.blocks, (bytes, i) => device.allocate(bytes, `own block ${i}`))
    for (const launch of plan.launches) {
      const executable = yield* device.load(plan.programs[launch.program]!)
      const bound = launch.slots.map((s) => s.kind === "block" ? memory[s.block]! : buffers.get(s.id)!)
      yield* (yield* device.plan([{ executable, buffers: bound }])).run(vars)
    }
  })

const x4 = (arena: Arena, id: number): Tensor.Tensor => Tensor.buffer(arena, id, { shape: [4], dtype: DType.f32 })

describe("Jit", () => {
  it.effect("schedules a graph once, however many buffers it is bound to", () => {
    let schedules = 0
    const counting = Layer.effect(
      Rangeify,
      Effect.map(Rangeify, ({ schedule }) => ({
        schedule: (...args: Parameters<typeof schedule>) => {
          schedules++
          return schedule(...args)
        }
      }))
    ).pipe(Layer.provide(Rangeify.layer))
    const layer = Jit.layer.pipe(
      Layer.provide(Compiler.layerReference),
      Layer.provide(Devices.referencePipeline),
      Layer.provide(counting),
      Layer.provideMerge(Reference.layer)
    )
    return Effect.gen(function*() {
      const jit = yield* Jit
      const arena = new Arena()
      const { sink } = TensorProgram.make([TensorProgram.assign(x4(arena, 1), x4(arena, 0).mul(2))])
      for (const values of [[1, 2, 3, 4], [5, 6, 7, 8]]) {
        const buffers = yield* upload(new Map([[0, Float32Array.from(values)], [1, new Float32Array(4)]]))
        const prepared = yield* jit.prepare(sink, buffers)
        yield* prepared.run({})
        const device = yield* Device
        assert.deepStrictEqual(floats(yield* device.read(buffers.get(1)!)), values.map((v) => v * 2))
      }
      assert.strictEqual(schedules, 1)
    }).pipe(Effect.scoped, Effect.provide(layer))
  })

  it.effect("stages what the costs that are provided prefer, and estimates the same; so with another rangeify", () => {
    const all = { key: "all", maxWorkgroupBytes: 4096, kernelMicros: () => ({ wait: 0, work: 1 }) }
    /** Stages nothing, whatever the costs say. */
    const plain = Layer.effect(
      Rangeify,
      Effect.map(Rangeify, ({ schedule }) => ({
        schedule: (...[sink, limits]: Parameters<typeof schedule>) => schedule(sink, { ...limits, fusion: undefined })
      }))
    ).pipe(Layer.provide(Rangeify.layer))
    const launches = (fusion: FusionCost | undefined, rangeify: Layer.Layer<Rangeify> = Rangeify.layer) =>
      Effect.gen(function*() {
        const jit = yield* Jit
        const arena = new Arena()
        const buffer = (id: number) => Tensor.buffer(arena, id, { shape: [2, 48], dtype: DType.f32 })
        const { sink } = TensorProgram.make([TensorProgram.assign(buffer(1), Nn.softmax(buffer(0)))])
        const x = Float32Array.from({ length: 96 }, (_, i) => i % 7)
        const buffers = yield* upload(new Map([[0, x], [1, new Float32Array(96)]]))
        const prepared = yield* jit.prepare(sink, buffers)
        yield* prepared.run({})
        const found = floats(yield* (yield* Device).read(buffers.get(1)!))
        assert.closeTo(found.slice(0, 48).reduce((a, b) => a + b, 0), 1, 1e-5)
        const estimate = yield* jit.estimate(sink)
        assert.strictEqual((yield* estimate.launches({})).length, prepared.plan.launches.length)
        assert.deepStrictEqual(estimate.blocks, prepared.plan.blocks)
        return prepared.plan.launches.length
      }).pipe(
        Effect.scoped,
        Effect.provide(
          Jit.layer.pipe(
            Layer.provide(Compiler.layerReference),
            Layer.provide(Devices.referencePipeline),
            Layer.provide([Layer.succeed(FusionCosts, () => fusion), rangeify]),
            Layer.provideMerge(Reference.layer)
          )
        )
      )
    return Effect.gen(function*() {
      assert.strictEqual(yield* launches(undefined), 3)
      assert.strictEqual(yield* launches(all), 1)
      assert.strictEqual(yield* launches(all, plain), 3)
    })
  })

  const replays = (name: string, layer: ReturnType<typeof Devices.wasm> | typeof Devices.reference) =>
    it.live(`${name}: replay is bit for bit the run kernel by kernel`, () =>
      Effect.gen(function*() {
        const jit = yield* Jit
        for (let seed = 0; seed < 40; seed++) {
          yield* Effect.gen(function*() {
            const random = randomProgram(seed, 16)
            const replayed = yield* upload(initial(random))
            const stepped = yield* upload(initial(random))
            const prepared = yield* jit.prepare(random.program.sink, replayed)
            yield* prepared.run(random.vars)
            yield* kernelByKernel(prepared.plan, stepped, random.vars)
            assert.deepStrictEqual(yield* download(replayed), yield* download(stepped), `seed ${seed}`)
          }).pipe(Effect.scoped)
        }
      }).pipe(Effect.provide(layer)))
  replays("wasm", Devices.wasm())
  replays("reference", Devices.reference)

  const program = blocks(4)
  const data = filled(program)

  it.live("captures once, runs as often as asked, and returns the memory with its Scope", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const jit = yield* Jit
      const before = device.allocatedBytes()
      yield* Effect.gen(function*() {
        const buffers = yield* upload(data)
        const { plan, run } = yield* jit.prepare(program.sink, buffers)
        assert.isAbove(plan.blocks.length, 0)
        yield* run({})
        const first = floats(yield* device.read(buffers.get(1)!))
        yield* run({})
        assert.deepStrictEqual(floats(yield* device.read(buffers.get(1)!)), first)
        yield* device.write(buffers.get(0)!, bytesOf(contents(99, 8)))
        yield* run({})
        assert.notDeepEqual(floats(yield* device.read(buffers.get(1)!)), first)
      }).pipe(Effect.scoped)
      assert.strictEqual(device.allocatedBytes(), before)
    }).pipe(Effect.provide(Devices.wasm())))

  it.live("replays with other values of the variables, empty grids included", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const jit = yield* Jit
      const arena = new Arena()
      const n = Tensor.variable(arena, "n", 0, 4)
      const [x, out] = [x4(arena, 0), x4(arena, 1)]
      const { sink } = TensorProgram.make([TensorProgram.assign(out.slice(0, 0, n), x.slice(0, 0, n).mul(2))])
      const buffers = yield* upload(new Map([[0, Float32Array.of(1, 2, 3, 4)], [1, new Float32Array(4)]]))
      const { plan, run } = yield* jit.prepare(sink, buffers)
      for (const [size, expected] of [[2, [2, 4, 0, 0]], [0, [2, 4, 0, 0]], [4, [2, 4, 6, 8]]] as const) {
        yield* run({ n: size })
        assert.deepStrictEqual(floats(yield* device.read(buffers.get(1)!)), expected)
      }
      assert.strictEqual(launchCount(plan, { n: 4 }), 1)
    }).pipe(Effect.scoped, Effect.provide(Devices.wasm())))

  it.live("says which kernel uses a buffer that the host did not bind", () =>
    Effect.gen(function*() {
      const jit = yield* Jit
      const arena = new Arena()
      const { sink } = TensorProgram.make([TensorProgram.assign(x4(arena, 1), x4(arena, 7).mul(2).label("twice"))])
      const buffers = yield* upload(new Map([[1, new Float32Array(4)]]))
      const error = yield* Effect.flip(jit.prepare(sink, buffers))
      assert.strictEqual(error._tag, "DeviceError")
      assert.strictEqual(error.message, "twice_4 uses buffer 7, which the host did not bind")
    }).pipe(Effect.scoped, Effect.provide(Devices.reference)))

  it.effect("works with mocked neighbours, and asks for each program once", () => {
    const compiled: Array<string> = []
    const loaded: Array<string> = []
    const device = Reference.make()
    const neighbours = [
      Devices.referencePipeline,
      Layer.mock(Compiler, {
        compile: (name, kernel) =>
          Effect.sync(() => {
            compiled.push(name)
            return Reference.program(name, kernel)
          })
      }),
      Layer.succeed(Device, {
        ...device,
        load: (p) =>
          Effect.suspend(() => {
            loaded.push(p.name)
            return device.load(p)
          })
      })
    ] as const
    return Effect.gen(function*() {
      const jit = yield* Jit
      const { plan, run } = yield* jit.prepare(program.sink, yield* upload(data))
      assert.strictEqual(compiled.length, plan.programs.length)
      assert.deepStrictEqual(loaded, plan.programs.map((p) => p.name))
      assert.isAbove(plan.launches.length, 2 * plan.programs.length)
      yield* run({})
    }).pipe(Effect.scoped, Effect.provide(Jit.layer.pipe(Layer.provideMerge(Layer.mergeAll(...neighbours)))))
  })

  it.effect("passes on the errors of its stages", () =>
    Effect.gen(function*() {
      const jit = yield* Jit
      const error = yield* Effect.flip(jit.prepare(new Arena().make("LINEAR", DType.none), new Map()))
      assert.strictEqual(error._tag, "RangeifyError")
    }).pipe(Effect.scoped, Effect.provide(Devices.reference)))
})
