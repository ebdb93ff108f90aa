import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Jit, type Settling } from "@tg/jit/Jit"
import { Device, DeviceError, type DeviceShape } from "@tg/runtime/Device"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import { Context, Effect, Fiber, Latch, Layer, Stream } from "effect"
import { fromModel } from "../src/Engine.ts"
import * as Loading from "../src/Loading.ts"
import * as Recovering from "../src/Recovering.ts"
import * as Sampler from "../src/Sampler.ts"
import { compilerOver } from "./support/devices.ts"
import { tiny, tinySource } from "./support/models.ts"

const lost = Effect.fail(new DeviceError({ reason: "DeviceLost", message: "the device was lost; make a new one" }))

/** The wasm device, until so many reads were answered. `made` are the devices. */
const fragile = (reads: number, made: Array<DeviceShape>) =>
  compilerOver(Layer.effect(
    Device,
    Effect.map(WasmDevice.make(), (device) => {
      made.push(device)
      let left = reads
      return Device.of({
        ...device,
        write: (...args) => Effect.suspend(() => left < 0 ? lost : device.write(...args)),
        read: (...args) => Effect.suspend(() => left-- <= 0 ? lost : device.read(...args))
      })
    })
  ))

const prompt = [1261, 1263, 1266, 285, 260, 263]
const sampling: Sampler.Settings = { ...Sampler.greedy, temperature: 0.9, seed: 2 }

/** Text from an engine whose devices last for so many reads each. */
const text = (lives: ReadonlyArray<number>, made: Array<DeviceShape> = []) =>
  Effect.gen(function*() {
    const next = [...lives]
    const device = Effect.suspend(() => Layer.build(fragile(next.shift() ?? Infinity, made)))
    const first = Context.pick(Device, Jit)(yield* device)
    const { generate, logits } = yield* fromModel(tinySource, tiny, { context: 96, rebuild: device }).pipe(
      Effect.provide(first)
    )
    const tokens = yield* Stream.runCollect(generate({ tokens: prompt, maxTokens: 12, sampling }))
    const rows = yield* Stream.runCollect(logits([...prompt, ...tokens.map((t) => t.id)]))
    return { tokens, rows }
  }).pipe(Effect.scoped)

describe("a persistent launch that gave up", () => {
  it.live("computes nothing that counts: the text is computed again", () =>
    Effect.gen(function*() {
      const whole = yield* text([])
      let asked = 0
      let built = 0
      const gaveUp = new DeviceError({ reason: "BarriersFailed", message: "workgroups did not all run at once" })
      const services = Effect.gen(function*() {
        const made = Context.pick(Device, Jit)(yield* Layer.build(fragile(Infinity, [])))
        built++
        const buffer = yield* Context.get(made, Device).allocate(4, "meeting")
        const settle: Settling = {
          span: () => ({ buffer, offset: 0, bytes: 4 }),
          check: () => built === 1 && asked++ >= 4 ? Effect.fail(gaveUp) : Effect.void
        }
        return Context.add(made, Jit, Jit.of({ ...Context.get(made, Jit), settle }))
      })
      const { generate } = yield* fromModel(tinySource, tiny, { context: 96, rebuild: services }).pipe(
        Effect.provide(yield* services)
      )
      const tokens = yield* Stream.runCollect(generate({ tokens: prompt, maxTokens: 12, sampling }))
      assertEquals(tokens, whole.tokens)
      assert.strictEqual(built, 2)
    }).pipe(Effect.scoped))
})

describe("a lost device", () => {
  it.live("is replaced, and the text goes on as if nothing had happened", () =>
    Effect.gen(function*() {
      const whole = yield* text([])
      const made: Array<DeviceShape> = []
      assert.isAtLeast(whole.tokens.length, 4)
      assertEquals(yield* text([2, 1, 1], made), whole)
      assert.strictEqual(made.length, 4)
      // nothing is left on any of them
      assertEquals(made.map((device) => device.allocatedBytes()), [0, 0, 0, 0])
    }))

  it.live("is an error where no other one is made", () =>
    Effect.gen(function*() {
      const first = Context.pick(Device, Jit)(yield* Layer.build(fragile(3, [])))
      const { generate } = yield* fromModel(tinySource, tiny, { context: 96 }).pipe(Effect.provide(first))
      const error = yield* Effect.flip(Stream.runCollect(generate({ tokens: prompt, maxTokens: 12 })))
      assert.deepInclude(error, { _tag: "DeviceError", reason: "DeviceLost" })
    }).pipe(Effect.scoped))

  it.live("is an error that says why it could not be replaced", () =>
    Effect.gen(function*() {
      const first = Context.pick(Device, Jit)(yield* Layer.build(fragile(3, [])))
      const rebuild = Effect.fail(new DeviceError({ reason: "Unavailable", message: "there is no other GPU" }))
      const { generate } = yield* fromModel(tinySource, tiny, { context: 96, rebuild }).pipe(Effect.provide(first))
      const error = yield* Effect.flip(Stream.runCollect(generate({ tokens: prompt, maxTokens: 12 })))
      assert.deepInclude(error, { _tag: "DeviceError", reason: "DeviceLost" })
      assert.include(error.message, "there is no other GPU")
    }).pipe(Effect.scoped))

  it.live("that is lost again at once is an error", () =>
    Effect.gen(function*() {
      const made: Array<DeviceShape> = []
      const error = yield* Effect.flip(text([1, 0, 0, 0], made))
      assert.deepInclude(error, { _tag: "DeviceError", reason: "DeviceLost" })
      assert.strictEqual(made.length, 2)
    }))

  it.live("ends what other sessions do there, which then goes on where the next one is", () =>
    Effect.gen(function*() {
      const read = { first: "answers" as "answers" | "waits" | "lost" }
      let made = 0
      const replacing = yield* Latch.make()
      const services = Effect.suspend(() =>
        Layer.build(compilerOver(Layer.effect(
          Device,
          Effect.map(WasmDevice.make(), (device) => {
            const isFirst = made++ === 0
            return Device.of({
              ...device,
              read: (...args) =>
                Effect.suspend(() =>
                  !isFirst || read.first === "answers"
                    ? device.read(...args)
                    : read.first === "waits"
                    ? Effect.andThen(replacing.await, device.read(...args))
                    : lost
                )
            })
          })
        )))
      )
      const first = Context.pick(Device, Jit)(yield* services)
      const rebuild = Effect.andThen(replacing.open, Effect.delay(services, "100 millis"))
      const home = yield* Loading.home(tinySource, tiny, { context: 96, rebuild }).pipe(Effect.provide(first))
      const one = yield* Recovering.session(home, ({ first }) => Effect.succeed(first))
      const two = yield* Recovering.session(home, ({ open }) => open)
      const three = yield* Recovering.session(home, ({ open }) => open)
      const id = yield* one.next(prompt)
      read.first = "waits"
      const waits = yield* Effect.forkChild(two.next(prompt), { startImmediately: true })
      yield* Effect.sleep("20 millis")
      read.first = "lost"
      const meets = yield* Effect.forkChild(one.next([...prompt, id]), { startImmediately: true })
      // while there is no device
      yield* replacing.await
      assertEquals(one.tokens(), [])
      yield* three.adopt(one, prompt.length)
      const after = yield* three.next([...prompt, id])
      assertEquals([yield* Fiber.join(waits), yield* Fiber.join(meets)], [id, after])
      assert.strictEqual(made, 2)
    }).pipe(Effect.scoped))
})
