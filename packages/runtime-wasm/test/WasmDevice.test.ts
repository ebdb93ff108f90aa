import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { type Program, RenderError } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import { Device } from "@tg/runtime/Device"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import * as Wasm from "@tg/codegen-wasm/Wasm"
import { kernel } from "../../codegen-wasm/test/support/linear.ts"
import * as WasmDevice from "../src/WasmDevice.ts"

const bytesOf = (values: ReadonlyArray<number>): Uint8Array => new Uint8Array(Float32Array.from(values).buffer)
const floats = (bytes: Uint8Array): ReadonlyArray<number> => [...new Float32Array(bytes.slice().buffer)]

const render = (name: string, linear: UOp): Effect.Effect<Program> =>
  Effect.sync(() => {
    const program = Wasm.render(name, linear, Wasm.assembler)
    if (program instanceof RenderError) throw program
    return program
  })

/** out[i] = in[i] * n + 1 */
const scale = kernel((b) => {
  const out = b.param(0, DType.f32, 4)
  const x = b.param(1, DType.f32, 4)
  const n = b.add(Expr.variable(b.arena, "n", -100, 100))
  b.loop(4, "GLOBAL", (i) => b.store(out, i, Expr.add(Expr.mul(b.load(x, i), Expr.cast(n, DType.f32)), 1)))
})

describe("WasmDevice", () => {
  it.effect("runs a plan with the values of each run", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const a = yield* device.allocate(16, "a")
      const b = yield* device.allocate(16, "b")
      const executable = yield* device.load(yield* render("scale", scale))
      const replay = yield* device.plan([
        { executable, buffers: [b, a] },
        { executable, buffers: [a, b] }
      ])
      yield* device.write(a, bytesOf([1, 2, 3, 4]))
      yield* replay.run({ n: 2 })
      assert.deepStrictEqual(floats(yield* device.read(b)), [3, 5, 7, 9])
      assert.deepStrictEqual(floats(yield* device.read(a)), [7, 11, 15, 19])
      yield* replay.run({ n: -1 })
      assert.deepStrictEqual(floats(yield* device.read(a, 4, 8)), [11, 15])
    }).pipe(Effect.provide(WasmDevice.layer())))

  it.effect("keeps contents and plans across growth", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const a = yield* device.allocate(16, "a")
      const out = yield* device.allocate(16, "out")
      yield* device.write(a, bytesOf([1, 2, 3, 4]))
      const executable = yield* device.load(yield* render("scale", scale))
      const replay = yield* device.plan([{ executable, buffers: [out, a] }])
      const large = yield* device.allocate(5 * 2 ** 20, "large")
      yield* replay.run({ n: 1 })
      assert.deepStrictEqual(floats(yield* device.read(out)), [2, 3, 4, 5])
      assert.strictEqual((yield* device.read(large, large.bytes - 4)).length, 4)
    }).pipe(Effect.provide(WasmDevice.layer())))

  it.effect("returns memory with its Scope and hands it out zeroed", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const scope = yield* Scope.make()
      const first = yield* Scope.provide(device.allocate(10, "first"), scope)
      assert.strictEqual(first.bytes, 12)
      assert.strictEqual(device.allocatedBytes(), 12)
      yield* device.write(first, bytesOf([1, 2, 3]))
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual(device.allocatedBytes(), 0)
      const second = yield* device.allocate(12, "second")
      assert.deepStrictEqual(floats(yield* device.read(second)), [0, 0, 0])
      const error = yield* Effect.flip(device.read(first))
      assert.strictEqual(error.reason, "BadArgument")
      assert.match(error.message, /first is used after its Scope closed/)
    }).pipe(Effect.provide(WasmDevice.layer())))

  it.effect("refuses to run a plan whose buffers are gone", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const scope = yield* Scope.make()
      const a = yield* Scope.provide(device.allocate(16, "weights"), scope)
      const executable = yield* device.load(yield* render("scale", scale))
      const replay = yield* device.plan([{ executable, buffers: [a, a] }])
      yield* replay.run({ n: 1 })
      yield* Scope.close(scope, Exit.void)
      assert.match((yield* Effect.flip(replay.run({ n: 1 }))).message, /weights is used after/)
    }).pipe(Effect.provide(WasmDevice.layer())))

  it.effect("says how much memory is missing", () =>
    Effect.gen(function*() {
      const device = yield* Device
      yield* device.allocate(65536, "small")
      const error = yield* Effect.flip(device.allocate(2 ** 20, "kv cache"))
      assert.strictEqual(error.reason, "OutOfMemory")
      assert.match(error.message, /kv cache: 1048576 bytes asked, 65536 are in use.*may use 1048576.*raise maxBytes/)
      assert.strictEqual(device.allocatedBytes(), 65536)
      // the refusals took nothing: the rest still fits
      yield* device.allocate(2 ** 20 - 65536, "rest")
    }).pipe(Effect.provide(WasmDevice.layer({ maxBytes: 2 ** 20 }))))

  it.effect("says that WebAssembly ends at 4 GiB", () =>
    Effect.gen(function*() {
      const device = yield* Device
      // reserved, and never touched
      yield* device.allocate(2 ** 31, "half")
      yield* device.allocate(4, "a little")
      const error = yield* Effect.flip(device.allocate(2 ** 31, "a large model"))
      assert.strictEqual(error.reason, "OutOfMemory")
      assert.match(
        error.message,
        /a large model: 2147483648 bytes asked.*WebAssembly addresses no more.*a smaller model, or a GPU/
      )
    }).pipe(Effect.provide(WasmDevice.layer())))

  it.effect("rejects programs that are not its own", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const good = yield* render("scale", scale)
      const text = yield* Effect.flip(device.load({ ...good, target: "wgsl", code: "fn main() {}" }))
      assert.strictEqual(text.reason, "BadArgument")
      assert.match(text.message, /scale is a program for wgsl/)
      const broken = yield* Effect.flip(device.load({ ...good, code: new Uint8Array([1, 2, 3]) }))
      assert.strictEqual(broken.reason, "ProgramRejected")
      assert.match(broken.message, /scale: CompileError/)
      const other = yield* WasmDevice.make()
      const foreign = yield* other.load(good)
      const a = yield* device.allocate(16, "a")
      const error = yield* Effect.flip(device.plan([{ executable: foreign, buffers: [a, a] }]))
      assert.match(error.message, /loaded on another device/)
    }).pipe(Effect.provide(WasmDevice.layer())))

  it.effect("names a wrong argument", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const a = yield* device.allocate(16, "a")
      const executable = yield* device.load(yield* render("scale", scale))
      const failure = (effect: Effect.Effect<unknown, { readonly message: string }>) =>
        Effect.map(Effect.flip(effect), (e) => e.message)
      assert.match(
        yield* failure(Effect.scoped(device.plan([{ executable, buffers: [a] }]))),
        /scale has 2 bindings and got 1 buffers/
      )
      const replay = yield* device.plan([{ executable, buffers: [a, a] }])
      assert.match(yield* failure(replay.run({})), /needs a value for the variable n/)
      assert.match(yield* failure(replay.run({ n: 0.5 })), /n = 0.5 is not an integer from -100 to 100/)
      assert.match(yield* failure(device.write(a, new Uint8Array(3))), /multiples of 4/)
      assert.match(yield* failure(device.write(a, new Uint8Array(16), 4)), /bytes 4 to 20 asked, the buffer has 16/)
      assert.match(yield* failure(device.read(a, 2)), /multiples of 4/)
    }).pipe(Effect.provide(WasmDevice.layer())))

  it.effect("reports a trap with the kernel's name", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const far = kernel((b) => b.store(b.param(0, DType.f32, 4), 2 ** 28, Expr.constant(b.arena, DType.f32, 1)))
      const a = yield* device.allocate(16, "a")
      const executable = yield* device.load(yield* render("far", far))
      const replay = yield* device.plan([{ executable, buffers: [a] }])
      assert.match((yield* Effect.flip(replay.run({}))).message, /far trapped: RuntimeError/)
    }).pipe(Effect.provide(WasmDevice.layer())))

  it.effect("compiles equal code once", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const program = yield* render("scale", scale)
      const first = yield* device.load(program)
      const second = yield* device.load({ ...program, name: "again", code: (program.code as Uint8Array).slice() })
      assert.strictEqual((first as { kernel?: unknown }).kernel, (second as { kernel?: unknown }).kernel)
      assert.strictEqual(second.program.name, "again")
    }).pipe(Effect.provide(WasmDevice.layer())))
})
