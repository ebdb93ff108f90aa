import { assert, describe, it } from "@effect/vitest"
import { h200 } from "@tg/core-uop/DeviceProfile"
import { bufferOf, Device, type DeviceBuffer, type Dispatch } from "@tg/runtime/Device"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { Jit } from "../src/Jit.ts"
import type { Slot } from "../src/Plan.ts"
import { encoding, median, profile, settle, withExtra } from "../src/Profiler.ts"
import { blocks, filled } from "./support/blocks.ts"
import * as Devices from "./support/devices.ts"
import { upload } from "./support/upload.ts"

describe("median", () => {
  it("is the middle, or between the two in the middle", () => {
    assert.deepStrictEqual([median([3, 1, 2]), median([4, 1, 3, 2])], [2, 2.5])
  })
})

const program = {
  name: "k",
  target: "reference",
  code: "",
  workgroup: [1, 1, 1],
  grid: [1, 1, 1],
  bindings: [{ slot: 0, access: "write" }, { slot: 1, access: "read" }, { slot: 2, access: "read" }],
  vars: []
} as const

describe("settle", () => {
  it.effect("waits for the device that a program was bound to again", () =>
    Effect.gen(function*() {
      const first = yield* Device
      const own = yield* first.allocate(4, "own")
      const { device, theirs } = yield* Effect.gen(function*() {
        const device = yield* Device
        return { device, theirs: yield* device.allocate(4, "theirs") }
      }).pipe(Effect.provide(Layer.fresh(Devices.wasm())))
      const step = (buffer: DeviceBuffer) => ({
        dispatches: [{ executable: { program }, buffers: [buffer] }]
      })
      yield* settle(step(own))
      yield* settle({ ...step(theirs), device })
      const { message } = yield* Effect.flip(settle(step(theirs)))
      assert.match(message, /theirs belongs to another device/)
    }).pipe(Effect.scoped, Effect.provide(Devices.wasm())))
})

describe("encoding", () => {
  it.effect("is the time of submitting alone, with three runs in flight", () =>
    Effect.gen(function*() {
      let runs = 0
      let inFlight = 0
      let most = 0
      const read = Effect.gen(function*() {
        for (let i = 0; i < 20; i++) yield* Effect.yieldNow
        inFlight = Math.max(0, inFlight - 1)
        return new Uint8Array(4)
      })
      const run = () =>
        Effect.suspend(() => {
          runs++
          most = Math.max(most, ++inFlight)
          return TestClock.adjust("2 millis")
        })
      const device = { ...yield* Device, profile: h200, read: () => read }
      const prepared = { dispatches: [{ executable: { program }, buffers: [{ label: "out", bytes: 4 }] }], run }
      const micros = yield* encoding(prepared, {}, 10).pipe(Effect.provideService(Device, device))
      assert.deepStrictEqual({ micros, runs, most, inFlight }, { micros: 2000, runs: 13, most: 3, inFlight: 0 })
    }).pipe(Effect.provide(Devices.wasm())))
})

describe("withExtra", () => {
  const buffer = (label: string): DeviceBuffer => ({ label, bytes: 4 })
  /** Layer i: writes its block, reads another block and its weights. */
  const layers = [0, 1, 2].map((i): { readonly dispatch: Dispatch; readonly slots: ReadonlyArray<Slot> } => ({
    dispatch: { executable: { program }, buffers: [buffer(`out${i}`), buffer(`in${i}`), buffer(`weights${i}`)] },
    slots: [{ kind: "block", block: 0 }, { kind: "block", block: 1 }, { kind: "buffer", id: i }]
  }))
  const prepared = {
    dispatches: layers.map((layer) => layer.dispatch),
    plan: {
      programs: [program],
      launches: layers.map(({ slots }) => ({ name: "k", program: 0, slots })),
      blocks: [4, 4]
    }
  }
  const labels = (dispatches: ReadonlyArray<Dispatch>) =>
    dispatches.map((dispatch) => dispatch.buffers.map((b) => bufferOf(b).label).join())

  it("puts copies with other layers' weights in front of a launch, and keeps the launch last", () => {
    assert.deepStrictEqual(labels(withExtra(prepared, [0, 1, 2], 2)), [
      "out0,in0,weights1",
      "out0,in0,weights2",
      "out0,in0,weights0",
      "out1,in1,weights0",
      "out1,in1,weights1",
      "out1,in1,weights1",
      "out2,in2,weights2",
      "out2,in2,weights0",
      "out2,in2,weights2"
    ])
  })

  it("leaves other kernels alone", () => {
    assert.deepStrictEqual(labels(withExtra(prepared, [1], 1)), [
      "out0,in0,weights0",
      "out1,in1,weights1",
      "out1,in1,weights1",
      "out2,in2,weights2"
    ])
  })
})

describe("profile", () => {
  /** A device with a clock, on which launches of this program take 7 microseconds and all others 3. */
  const withClock = (device: Device["Service"], slow: string): Device["Service"] => ({
    ...device,
    profile: { ...device.profile, kind: "gpu" },
    plan: (dispatches) =>
      Effect.map(device.plan(dispatches), ({ run }) => ({
        run,
        timed: (vars) =>
          Effect.as(
            run(vars),
            dispatches.reduce((sum, { executable }) => sum + timeOf(executable.program.name, slow), 0)
          )
      }))
  })
  const timeOf = (name: string, slow: string): number => name === slow ? 7 : 3

  it.live("believes the device's clock where there is one", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const jit = yield* Jit
      const program = blocks(3)
      const buffers = new Map<number, DeviceBuffer>()
      for (const { id, shape } of program.buffers) {
        const bytes = 4 * shape.reduce<number>((n, d) => n * Number(d), 1)
        buffers.set(id, yield* device.allocate(bytes, `buffer ${id}`))
      }
      const prepared = yield* jit.prepare(program.sink, buffers)
      const { programs } = prepared.plan
      const slow = programs[0]!.name
      const clocked = withClock(device, slow)
      const { deviceMicros, kernels, method } = yield* profile(
        { ...prepared, ...(yield* clocked.plan(prepared.dispatches)) },
        {}
      ).pipe(Effect.provideService(Device, clocked))
      assert.strictEqual(method, "clock")
      for (const { launches, micros } of kernels) {
        assert.strictEqual(micros, timeOf(programs[prepared.plan.launches[launches[0]!]!.program]!.name, slow))
      }
      assert.strictEqual(kernels.reduce((sum, { launches, micros }) => sum + launches.length * micros, 0), deviceMicros)
    }).pipe(Effect.scoped, Effect.provide(Devices.wasm())))

  const sees = (name: string, layer: ReturnType<typeof Devices.wasm>, method: "each" | "extra", kind: "cpu" | "gpu") =>
    it.live(`${name}: has a time for every launch, and leaves what a run leaves`, () =>
      Effect.gen(function*() {
        const device = yield* Device
        const jit = yield* Jit
        const program = blocks(3)
        const buffers = yield* upload(filled(program))
        const prepared = yield* jit.prepare(program.sink, buffers)
        const all = Effect.forEach([...buffers.values()], (b) => Effect.map(device.read(b), (bytes) => [...bytes]))
        yield* prepared.run({})
        const expected = yield* all
        const measured = yield* profile(prepared, {}).pipe(
          Effect.provideService(Device, { ...device, profile: { ...device.profile, kind } })
        )
        assert.deepStrictEqual(yield* all, expected)
        assert.strictEqual(measured.method, method)
        assert.deepStrictEqual(
          measured.kernels.flatMap((kernel) => kernel.launches).toSorted((a, b) => a - b),
          prepared.dispatches.map((_, i) => i)
        )
        assert.isTrue(measured.kernels.every((kernel) => kernel.micros >= 0))
        assert.isAbove(measured.stepMicros, 0)
      }).pipe(Effect.scoped, Effect.provide(layer)))
  sees("each", Devices.wasm(), "each", "cpu")
  // the other method on the same device: it would trap where a copy read a wrong index
  sees("extra", Devices.wasm(), "extra", "gpu")
})
