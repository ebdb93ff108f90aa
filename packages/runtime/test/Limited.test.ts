import { assert, describe, it } from "@effect/vitest"
import { Arena } from "@tg/core-uop/UOp"
import { Effect } from "effect"
import * as Kernels from "../src/ConformanceKernels.ts"
import { Device } from "../src/Device.ts"
import * as Limited from "../src/Limited.ts"
import * as Reference from "../src/Reference.ts"

const within = (limits: Readonly<Record<string, number>>) =>
  Limited.within({ limits, subgroups: false })(Reference.layer)

const program = Reference.program("addOne", Kernels.addOne(new Arena()))
const bytes = 4 * Kernels.count

describe("a device within limits", () => {
  it.effect("says so in its profile, and refuses arguments that are larger", () =>
    Effect.gen(function*() {
      const device = yield* Device
      assert.strictEqual(device.profile.maxBindingBytes, 4096)
      const executable = yield* device.load(program)
      const input = yield* device.allocate(2 * bytes, "input")
      const output = yield* device.allocate(bytes, "output")
      const error = yield* Effect.flip(device.plan([{ executable, buffers: [output, input] }]))
      assert.strictEqual(error.reason, "LimitExceeded")
      assert.strictEqual(error.message, "addOne binds 8024 bytes of input, 4096 are allowed; bind a window of it")
      yield* device.plan([{ executable, buffers: [output, { buffer: input, offset: 0, bytes }] }])
      // the device would take it, but over the end of a buffer of 4096 bytes
      const over = { buffer: input, offset: 256, bytes }
      assert.match((yield* Effect.flip(device.plan([{ executable, buffers: [output, over] }]))).message, /over the end/)
    }).pipe(Effect.scoped, Effect.provide(within({ maxStorageBufferBindingSize: 4096, maxBufferSize: 4096 }))))

  it.effect("refuses programs that bind more buffers", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(
        (yield* Device).load({ ...program, bindings: [...program.bindings, ...program.bindings] })
      )
      assert.strictEqual(error.message, "addOne binds 4 buffers, 2 are allowed")
    }).pipe(Effect.provide(within({ maxStorageBuffersPerShaderStage: 2 }))))

  it.effect("refuses memory beyond the budget, and gives it out again when some comes back", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const error = yield* Effect.scoped(
        Effect.andThen(device.allocate(600, "cache"), Effect.flip(device.allocate(600, "more")))
      )
      assert.strictEqual(error.reason, "OutOfMemory")
      assert.match(error.message, /more: 600 bytes asked, 600 are in use, and all may take 1000/)
      yield* device.allocate(1000, "again")
    }).pipe(Effect.scoped, Effect.provide(within({ memory: 1000 }))))
})
