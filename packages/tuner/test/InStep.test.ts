import { assert, describe, it } from "@effect/vitest"
import * as Wasm from "@tg/codegen-wasm/Wasm"
import { Profile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import type { Prepared } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Opt from "@tg/postrange/Opt"
import { bufferOf, Device, type Dispatch, type Executable } from "@tg/runtime/Device"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import { Effect, Layer } from "effect"
import * as InStep from "../src/InStep.ts"
import * as Launch from "../src/Launch.ts"
import { Tuner } from "../src/Tuner.ts"
import * as Workbench from "../src/Workbench.ts"
import * as Kernels from "./support/kernels.ts"

const setup = { vars: {}, bytes: 4 * 16 * 64, rotateBytes: 0, seed: 0 }
const [kernel, other] = [Kernels.product(16, 64), Kernels.product(8, 64)]
const job = { name: "product", kernel, setup }

/** Microseconds of a launch, by its program and whether programs of another kernel are in the same replay. */
type Cost = (executable: Executable, isInStep: boolean) => number

/** A device that takes as long as it is said to, and computes what it is given. */
const deviceOf = (cost: Cost) =>
  Layer.effect(
    Device,
    Effect.map(Device, (device) =>
      Device.of({
        ...device,
        plan: (dispatches) => {
          const isInStep = new Set(dispatches.map(({ executable }) => executable.program.name)).size > 1
          const micros = dispatches.reduce((sum, { executable }) => sum + cost(executable, isInStep), 0)
          return Effect.map(device.plan(dispatches), ({ run }) => ({ run, timed: () => Effect.succeed(micros) }))
        }
      }))
  ).pipe(Layer.provide(WasmDevice.layer()))

const profileOfDevice = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))
const onDevice = (cost: Cost) =>
  Tuner.layer.pipe(
    Layer.provideMerge(Pipeline.layer),
    Layer.provide([Wasm.layer, profileOfDevice]),
    Layer.provideMerge(deviceOf(cost))
  )

/** A step of two launches of the kernel with another one in between, whose results go to buffers of their own. */
const stepOf = Effect.gen(function*() {
  const device = yield* Device
  const pipeline = yield* Pipeline
  const loaded = Effect.fnUntraced(function*(name: string, kernel: UOp) {
    const bench = yield* Workbench.make(name, kernel, setup)
    return yield* bench.compile(yield* Launch.usual(kernel, pipeline))
  })
  const [own, between] = [yield* loaded("product", kernel), yield* loaded("other", other)]
  const dispatchOf = Effect.fnUntraced(function*(executable: Executable) {
    const buffers = yield* Effect.forEach(
      executable.program.bindings,
      ({ bytes = 0 }, i) => device.allocate(bytes, `${executable.program.name} ${i}`)
    )
    for (const buffer of buffers.slice(1)) {
      yield* device.write(buffer, new Uint8Array(new Float32Array(buffer.bytes / 4).fill(0.5).buffer))
    }
    return { executable, buffers }
  })
  const dispatches = yield* Effect.forEach([own, between, own], dispatchOf)
  const kernels = [kernel, other, kernel]
  const prepared: Prepared = {
    ...(yield* device.plan(dispatches)),
    dispatches,
    plan: { programs: [], launches: [], blocks: [] },
    schedule: Effect.succeed({
      steps: kernels.map((ast) => ({ kind: "kernel", name: "product", ast, args: [], boundaries: [] })),
      temporaries: []
    } as never)
  }
  return { prepared, step: yield* InStep.make(prepared, {}) }
})

/** Whether a program of the kernel is the one of the usual opts: it was loaded first, and is compiled again. */
const isUsual = () => {
  let first: string | undefined
  return ({ program: { code } }: Executable): boolean => {
    const own = String(code)
    return (first ??= own) === own
  }
}

describe("a kernel in a step", () => {
  it.live("has the opts that are the fastest there, and not alone", () => {
    const usual = isUsual()
    // all others are twice as fast alone
    const cost: Cost = (executable, isInStep) =>
      executable.program.name === "other" ? 3 : usual(executable) ? 10 : isInStep ? 12 : 5
    return Effect.gen(function*() {
      const tuner = yield* Tuner
      const { step } = yield* stepOf
      const alone = yield* tuner.tune(job, 0.2)
      assert.deepStrictEqual([alone.usual.micros, alone.best.micros], [10, 5])
      const placed = yield* tuner.tune({ ...job, place: step.placeOf(kernel) }, 0.2)
      assert.strictEqual(placed.best, placed.usual)
      assert.deepStrictEqual(yield* step.micros, { before: 23, now: 23 })
    }).pipe(Effect.scoped, Effect.provide(onDevice(cost)))
  })

  it.live("is kept, so that kernels behind it are timed beside it", () => {
    const usual = isUsual()
    const cost: Cost = (executable, isInStep) =>
      executable.program.name === "other" ? 3 : usual(executable) ? 10 : isInStep ? 6 : 11
    return Effect.gen(function*() {
      const { step } = yield* stepOf
      const { best, usual } = yield* (yield* Tuner).tune({ ...job, place: step.placeOf(kernel) }, 0.2)
      assert.deepStrictEqual([usual.micros, best.micros], [10, 6])
      assert.deepStrictEqual(yield* step.micros, { before: 23, now: 15 })
    }).pipe(Effect.scoped, Effect.provide(onDevice(cost)))
  })

  it.effect("binds what the launch had, by slot", () =>
    Effect.gen(function*() {
      const planned: Array<ReadonlyArray<Dispatch>> = []
      const device = yield* Device
      const noting = Device.of({
        ...device,
        plan: (dispatches) => {
          planned.push(dispatches)
          return device.plan(dispatches)
        }
      })
      const { prepared } = yield* stepOf
      const bench = yield* Workbench.make("product", kernel, setup)
      const program = yield* bench.compile([[Opt.unroll(1, 4)]])
      const turned = { ...program.program, bindings: program.program.bindings.toReversed() }
      const step = yield* Effect.provideService(InStep.make(prepared, {}), Device, noting)
      step.placeOf(kernel).keep({ program: turned })
      yield* Effect.ignore(step.micros)
      const labels = planned.at(-1)!.map(({ buffers }) => buffers.map((buffer) => bufferOf(buffer).label))
      assert.deepStrictEqual(labels, [
        ["product 2", "product 1", "product 0"],
        ["other 0", "other 1", "other 2"],
        ["product 2", "product 1", "product 0"]
      ])
    }).pipe(Effect.scoped, Effect.provide(onDevice(() => 1))))
})
