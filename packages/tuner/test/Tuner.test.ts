import { assert, describe, it } from "@effect/vitest"
import * as Wasm from "@tg/codegen-wasm/Wasm"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import { Profile } from "@tg/core-uop/DeviceProfile"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Opt from "@tg/postrange/Opt"
import { Postrange, whyIllegal } from "@tg/postrange/Postrange"
import { members } from "@tg/rangeify/Horizontal"
import { Device, type Executable } from "@tg/runtime/Device"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import * as Testing from "@tg/runtime-webgpu/Testing"
import { Effect, Layer } from "effect"
import { Tuner } from "../src/Tuner.ts"
import * as Launch from "../src/Launch.ts"
import * as Store from "../src/Store.ts"
import * as Tuned from "../src/Tuned.ts"
import * as Kernels from "./support/kernels.ts"

const profileOfDevice = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))
const wasm = Tuner.layer.pipe(
  Layer.provideMerge(Pipeline.layer),
  Layer.provideMerge([Wasm.layer, profileOfDevice]),
  Layer.provideMerge(WasmDevice.layer())
)
const renderer = Layer.unwrap(
  Effect.map(Device, ({ profile: { subgroupSize } }) => WgslRenderer.layer({ subgroupSize }))
)
const webgpu = Tuner.layer.pipe(
  Layer.provideMerge(Pipeline.layer),
  Layer.provideMerge([renderer, profileOfDevice]),
  Layer.provideMerge(Testing.layer)
)

const setup = { vars: {}, bytes: 4 * 64 * 256, rotateBytes: 4 * 4 * 64 * 256, seed: 0 }

const tunes = (name: string, layer: typeof wasm | typeof webgpu, kernel: ReturnType<typeof Kernels.product>) =>
  it.live(name, () =>
    Effect.gen(function*() {
      const tuner = yield* Tuner
      const { profile } = yield* Device
      const job = { name, kernel, setup }
      const look = yield* tuner.look(job)
      const { best, failed, refused, start, tried, usual } = yield* tuner.tune(job, 0.5)
      assert.deepStrictEqual(look.opts, yield* Launch.usual(kernel, yield* Pipeline))
      assert.deepStrictEqual(look.opts, usual.opts)
      assert.strictEqual(start, usual)
      assert.isAbove(look.micros, 0)
      const timed = yield* tuner.time(job)
      assert.deepStrictEqual(timed.opts, usual.opts)
      assert.isAbove(timed.micros, 0)
      assert.isAbove(tried, 0)
      assert.isAtMost(failed, tried)
      assert.isEmpty(refused)
      assert.isAtMost(best.micros, usual.micros)
      // what is kept of it is found by each member
      const adapter = "some device"
      const store = members(kernel).reduce((known, { ast }, i) => {
        const entry = { name, opts: best.opts[i]!, micros: best.micros, usualMicros: usual.micros }
        return Store.merge(known, Store.of(adapter, ast, entry))
      }, Store.empty)
      for (const [i, { ast }] of members(kernel).entries()) {
        assert.deepStrictEqual(Tuned.choose(ast, { ...profile, adapter }, store), {
          opts: best.opts[i]!,
          origin: "tuned"
        })
      }
    }).pipe(Effect.provide(layer)))

describe("Tuner on wasm", () => {
  tunes("product", wasm, Kernels.product(64, 256))
  tunes("chosen rows", wasm, Kernels.chosenRows())

  const kernel = Kernels.product(16, 64)
  const job = { name: "product", kernel, setup }

  /** The device as it would be if every program but the first were twice as fast, and read differently when read again. */
  const fake = (read: (bytes: Uint8Array, time: number) => Uint8Array) =>
    Layer.effect(
      Device,
      Effect.map(Device, (device) => {
        let first: Executable | undefined
        let reads = 0
        return Device.of({
          ...device,
          load: (program) => Effect.tap(device.load(program), (made) => Effect.sync(() => first ??= made)),
          plan: (dispatches) =>
            Effect.map(device.plan(dispatches), ({ run }) => ({
              run,
              timed: () => Effect.succeed(dispatches.length * (dispatches[0]!.executable === first ? 10 : 5))
            })),
          read: (buffer, offset, bytes) =>
            Effect.map(
              device.read(buffer, offset, bytes),
              (found) => bytes === undefined ? read(found, reads++) : found
            )
        })
      })
    ).pipe(Layer.provide(WasmDevice.layer()))
  const withFake = (read: (bytes: Uint8Array, time: number) => Uint8Array) =>
    Tuner.layer.pipe(
      Layer.provide(Pipeline.layer),
      Layer.provide([Wasm.layer, profileOfDevice]),
      Layer.provide(fake(read))
    )

  it.live("tries only what the given Postrange allows", () => {
    const forbidden = new Set<Opt.Kind>()
    const some = Postrange.layerOf({
      whyIllegal: (kernel, opt, profile) => {
        if (opt.kind !== "SPREAD" && opt.kind !== "UPCAST") return whyIllegal(kernel, opt, profile)
        forbidden.add(opt.kind)
        return "not here"
      }
    })
    const layer = withFake((bytes) => bytes).pipe(Layer.provide(some))
    return Effect.gen(function*() {
      const { best, failed, tried, usual } = yield* (yield* Tuner).tune(job, 0.2)
      assert.isAbove(tried, 0)
      // what the stage refuses would be a failure
      assert.strictEqual(failed, 0)
      const kinds = [...best.opts.flat(), ...usual.opts.flat()].map(({ kind }) => kind)
      assert.isEmpty(kinds.filter((kind) => kind === "SPREAD" || kind === "UPCAST"))
      assert.isTrue(forbidden.has("UPCAST"))
    }).pipe(Effect.provide(layer))
  })

  it.live("takes what is faster and computes the same", () =>
    Effect.gen(function*() {
      const { best, usual } = yield* (yield* Tuner).tune(job, 0.2)
      assert.deepStrictEqual([usual.micros, best.micros], [10, 5])
    }).pipe(Effect.provide(withFake((bytes) => bytes))))

  it.live("leaves opts as they are that are held, and says what they gain", () =>
    Effect.gen(function*() {
      const opts = [Opt.upcast(0, 2)]
      const { best, start, tried, usual } = yield* (yield* Tuner).tune({ ...job, held: () => opts }, 0.2)
      assert.strictEqual(best, start)
      assert.deepStrictEqual([usual.micros, start.micros, tried], [10, 5, 0])
      assert.deepStrictEqual(best.opts, [opts])
      assert.notDeepEqual(usual.opts, [opts])
    }).pipe(Effect.provide(withFake((bytes) => bytes))))

  it.live("refuses what computes something else, and says so", () =>
    Effect.gen(function*() {
      const { best, refused, usual } = yield* (yield* Tuner).tune(job, 0.2)
      assert.strictEqual(best, usual)
      assert.isNotEmpty(refused)
      assert.match(refused[0]!, /^[A-Z]+\(.*: output 0\[0\] is .* instead of /)
    }).pipe(Effect.provide(withFake((bytes, time) => time === 0 ? bytes : bytes.fill(64)))))

  it.live("fails where the usual opts are wrong already", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip((yield* Tuner).tune(job, 0.2))
      assert.strictEqual(error._tag, "WrongResult")
      assert.match(error.message, /^product is wrong before any tuning: output 0\[0\] is .* instead of /)
    }).pipe(Effect.provide(withFake((bytes) => bytes.fill(64)))))
})

describe.skipIf((await Testing.availableAdapter()) === undefined)("Tuner on WebGPU", () => {
  tunes("product", webgpu, Kernels.product(16, 64))
  tunes("two products in a launch", webgpu, Kernels.products([16, 4], 64))
})
