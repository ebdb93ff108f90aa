import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Renderer } from "@tg/core-uop/Program"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Conformance from "@tg/runtime/Conformance"
import * as Kernels from "@tg/runtime/ConformanceKernels"
import { Device } from "@tg/runtime/Device"
import * as Reference from "@tg/runtime/Reference"
import { Cause, Effect, Exit } from "effect"

const compile = (kernel: UOp) =>
  Effect.sync(() => Reference.program((kernel.arg as { readonly name: string }).name, kernel))

describe("the reference device conforms", () => {
  for (const { effect, name } of Conformance.cases(compile)) {
    it.effect(name, () => effect.pipe(Effect.provide(Reference.layer)))
  }
})

describe("conformance", () => {
  it.effect("finds a device that does not keep its promises", () =>
    Effect.gen(function*() {
      const honest = Reference.make()
      const broken = Device.of({ ...honest, write: (buffer, data) => honest.write(buffer, data) }) // forgets the offset
      const failed: Array<string> = []
      for (const { effect, name } of Conformance.cases(compile)) {
        const exit = yield* Effect.exit(effect.pipe(Effect.provideService(Device, broken)))
        if (Exit.isFailure(exit)) failed.push(name)
      }
      assert.deepStrictEqual(failed, [
        "bytes come back as they were written, at their offsets",
        "misaligned and outside ranges are bad arguments, and change nothing"
      ])
    }))
})

describe("what only the reference device does", () => {
  it.effect("runs out of memory at its limit, and recovers", () =>
    Effect.scoped(Effect.gen(function*() {
      const device = yield* Device
      yield* device.allocate(600, "first")
      const error = yield* Effect.flip(Effect.scoped(device.allocate(401, "second")))
      assert.strictEqual(error.reason, "OutOfMemory")
      assert.match(error.message, /second needs 404 bytes; 600 of 1000 are taken/)
      yield* device.allocate(400, "third")
      assert.strictEqual(device.allocatedBytes(), 1000)
    })).pipe(Effect.provide(Reference.layerWith({ limitBytes: 1000 }))))

  it.effect("rejects a graph that is not a kernel, naming the node", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const arena = new Arena()
      const error = yield* Effect.flip(
        device.load(Reference.program("odd", arena.make("SINK", DType.none, [Expr.int(arena, 1)])))
      )
      assert.strictEqual(error.reason, "ProgramRejected")
      assert.match(error.message, /odd: SINK: a kernel's roots are END nodes/)
    }).pipe(Effect.provide(Reference.layer)))

  it.effect("refuses to bind what a program writes twice", () =>
    Effect.scoped(Effect.gen(function*() {
      const device = yield* Device
      const executable = yield* device.load(yield* compile(Kernels.addOne(new Arena())))
      const buffer = yield* device.allocate(Kernels.count * 4, "both")
      const error = yield* Effect.flip(device.plan([{ executable, buffers: [buffer, buffer] }]))
      assert.match(error.message, /addOne writes slot 0, and both is bound to slot 1 too/)
      // one of both reads, so that windows of it are refused as well
      const large = yield* device.allocate(Kernels.count * 4 + 4096, "large")
      const [first, second] = [0, 4096].map((offset) => ({ buffer: large, offset, bytes: Kernels.count * 4 }))
      const apart = yield* Effect.flip(device.plan([{ executable, buffers: [first!, second!] }]))
      assert.match(apart.message, /large is bound to slot 1 too/)
    })).pipe(Effect.provide(Reference.layer)))

  it.effect("refuses a variable outside its bounds", () =>
    Effect.scoped(Effect.gen(function*() {
      const device = yield* Device
      const executable = yield* device.load(yield* compile(Kernels.symbolic(new Arena())))
      const plan = yield* device.plan([{ executable, buffers: [yield* device.allocate(Kernels.count * 4, "out")] }])
      const error = yield* Effect.flip(plan.run({ n: Kernels.count + 1, v: 0 }))
      assert.match(error.message, /n = 1004 is not an integer from 0 to 1003/)
    })).pipe(Effect.provide(Reference.layer)))

  it.effect("dies of an access outside a buffer", () =>
    Effect.scoped(Effect.gen(function*() {
      const device = yield* Device
      const program = yield* compile(Kernels.addOne(new Arena()))
      // a program that does not say how far it reaches, as one written by hand
      const bindings = program.bindings.map(({ access, slot }) => ({ access, slot }))
      const executable = yield* device.load({ ...program, bindings })
      const buffers = [yield* device.allocate(Kernels.count * 4, "out"), yield* device.allocate(40, "short")]
      const exit = yield* Effect.exit((yield* device.plan([{ executable, buffers }])).run({}))
      assert.isTrue(Exit.isFailure(exit) && Cause.hasDies(exit.cause))
      assert.match(
        String(Exit.isFailure(exit) ? Cause.squash(exit.cause) : ""),
        /slot 1: element 10 is outside the 10 elements/
      )
    })).pipe(Effect.provide(Reference.layer)))

  it.effect("runs linear kernels through its renderer", () =>
    Effect.scoped(Effect.gen(function*() {
      const device = yield* Device
      const renderer = yield* Renderer
      const arena = new Arena()
      const size = Expr.int(arena, 4)
      const thread = arena.make("SPECIAL", DType.index, [size], { name: "lidx0" })
      const buffer = arena.make("PARAM", DType.u32, [size], { slot: 0 })
      const value = Expr.cast(thread, DType.u32)
      const element = Expr.element(buffer, thread)
      const linear = arena.make("LINEAR", DType.none, [
        size,
        thread,
        buffer,
        value,
        element,
        Expr.store(element, value)
      ])
      const executable = yield* device.load(yield* renderer.render("count", linear))
      assert.deepStrictEqual(executable.program.workgroup, [4, 1, 1])
      const out = yield* device.allocate(16, "out")
      yield* (yield* device.plan([{ executable, buffers: [out] }])).run({})
      assert.deepStrictEqual([...new Uint32Array((yield* device.read(out)).buffer)], [0, 1, 2, 3])
      const broken = arena.make("LINEAR", DType.none, [thread])
      const error = yield* Effect.flip(renderer.render("broken", broken))
      assert.match(error.message, /uses CONST before its definition/)
    })).pipe(Effect.provide([Reference.layer, Reference.renderer()])))
})
