/** Kernels written by hand: what is refused, what is kept, what is counted. How they compute, `examples/kernel` shows. */
import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { h200, Profile, wasm } from "@tg/core-uop/DeviceProfile"
import { evaluateIndex } from "@tg/core-uop/Program"
import { Arena } from "@tg/core-uop/UOp"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import { Device, type DeviceError } from "@tg/runtime/Device"
import * as TensorProgram from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { TensorError } from "@tg/tensor/TensorError"
import { Effect, Layer, Result } from "effect"
import * as CompileCache from "../src/CompileCache.ts"
import { CompileError, Compiler } from "../src/Compiler.ts"
import { Jit } from "../src/Jit.ts"
import type { ExecutionPlan } from "../src/Plan.ts"
import * as PlanText from "../src/PlanText.ts"
import { Pipeline } from "../src/Pipeline.ts"
import * as Devices from "./support/devices.ts"
import { estimateOn } from "./support/estimates.ts"

type Sources = NonNullable<TensorProgram.CustomKernel["sources"]>

/** Adds 1 to words, a word for each iteration. */
const addOne = (by = 1): Sources => ({
  wasm: {
    text: `(func (export "run") (param $from i32) (param $to i32) (param $x i32) (param $n i32)
      (local $at i32)
      (block $done (loop $next
        (br_if $done (i32.ge_s (local.get $from) (local.get $to)))
        (local.set $at (i32.add (local.get $x) (i32.shl (local.get $from) (i32.const 2))))
        (f32.store (local.get $at) (f32.add (f32.load (local.get $at)) (f32.const ${by})))
        (local.set $from (i32.add (local.get $from) (i32.const 1)))
        (br $next))))`,
    grid: (x) => [x!.shape[0]!, 1, 1]
  }
})

const text = (wgsl: string, workgroup: readonly [number, number, number] = [64, 1, 1]): Sources => ({
  wgsl: { text: wgsl, workgroup, grid: [1, 1, 1] }
})

const programOf = (sources: Sources, cost?: TensorProgram.CustomKernel["cost"]) => {
  const arena = new Arena()
  const n = Tensor.variable(arena, "n", 0, 8)
  const x = Tensor.buffer(arena, 0, { shape: [n.node], dtype: DType.f32 })
  const kernel: TensorProgram.CustomKernel = {
    name: "by_hand",
    writes: [0],
    sources,
    ...(cost === undefined ? {} : { cost }),
    reference: ([y], { n: count }) => {
      for (let i = 0; i < count!; i++) y![i]!++
    }
  }
  return { sink: TensorProgram.make([TensorProgram.custom(kernel, [x, n])]).sink, x, n, kernel }
}

/** A WebGPU compiler without a device. */
const wgsl = Jit.layer.pipe(
  Layer.provide([
    Compiler.layer,
    Layer.mock(Device, { profile: h200, allocatedBytes: () => 0, load: (program) => Effect.succeed({ program }) })
  ]),
  Layer.provide(Pipeline.layer),
  Layer.provide([WgslRenderer.layer(), Profile.layer(h200)])
)

const refusal = (sources: Sources, layer: Layer.Layer<Jit | Device, DeviceError> | typeof wgsl) =>
  Effect.gen(function*() {
    return yield* Effect.flip((yield* Jit).compile(programOf(sources).sink))
  }).pipe(Effect.provide(layer))

describe("a kernel written by hand is refused", () => {
  it.live("without a source for the device", () =>
    Effect.gen(function*() {
      const error = yield* refusal(text("fn main() {}"), Devices.wasm())
      assert.instanceOf(error, CompileError)
      assert.include(error.message, "by_hand is written by hand for wgsl, and this device runs wasm; add sources.wasm")
    }))

  it.live("with text that is no module of WebAssembly", () =>
    Effect.gen(function*() {
      const source = (written: string): Sources => ({ wasm: { text: written, grid: [1, 1, 1] } })
      for (
        const [written, said] of [
          ["(func $f (result i32) (f32.const 1))", "the assembler rejects its text"],
          ["(module (memory 1))", "its text is a whole module"],
          ["(func $f)", "the module exports no function named run"],
          [`(func (export "run") (param i32 i32 i32))`, "run has 3 parameters, and should have 4"]
        ] as const
      ) {
        assert.include((yield* refusal(source(written), Devices.wasm())).message, said)
      }
    }))

  it.live("with WGSL that says something else than its launch", () =>
    Effect.gen(function*() {
      const main = (size: string) => `@compute @workgroup_size(${size}) fn main() {}`
      assert.include((yield* refusal(text("fn other() {}"), wgsl)).message, "its WGSL has no entry point")
      assert.include((yield* refusal(text(main("32")), wgsl)).message, "@workgroup_size(32), and it is declared for")
      yield* Effect.flatMap(Jit, (jit) => jit.compile(programOf(text(main("64, 1")))["sink"])).pipe(
        Effect.provide(wgsl)
      )
    }))

  it("with what is no variable, or no storage", () => {
    const { kernel, n, x } = programOf(addOne())
    assert.throws(() => TensorProgram.custom(kernel, [x, n.add(1)]), TensorError, /variables as symbolic arguments/)
    assert.throws(
      () => TensorProgram.custom({ ...kernel, writes: [1] }, [x, n]),
      TensorError,
      /storage 1, which it writes/
    )
  })
})

describe("a kernel written by hand", () => {
  it.live("is kept with its program, and compiled anew when its text changes", () =>
    Effect.gen(function*() {
      const plans = new Map<string, string>()
      const cache = Layer.succeed(CompileCache.CompileCache, {
        get: (key) =>
          Effect.sync(() => plans.has(key) ? Result.getOrThrow(PlanText.decode(key, plans.get(key)!)) : undefined),
        set: (key, plan: ExecutionPlan) => Effect.sync(() => void plans.set(key, PlanText.encode(key, plan)!))
      })
      const run = (by: number) =>
        Effect.gen(function*() {
          const device = yield* Device
          const x = yield* device.allocate(32, "x")
          const { run } = yield* (yield* Jit).prepare(programOf(addOne(by)).sink, new Map([[0, x]]))
          yield* run({ n: 3 })
          return [...new Float32Array((yield* device.read(x, 0, 32)).slice().buffer)]
        }).pipe(Effect.scoped, Effect.provide(Devices.wasm().pipe(Layer.provide(cache))))
      for (const [by, kept] of [[1, 1], [1, 1], [2, 2], [1, 2]] as const) {
        assert.deepStrictEqual(yield* run(by), [by, by, by, 0, 0, 0, 0, 0])
        assert.strictEqual(plans.size, kept)
      }
    }))

  it.live("is divided among threads where its cost says that it is worth it", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const x = yield* device.allocate(32, "x")
      const { sink } = programOf(addOne(), (_, n) => ({ flops: n!.mul(1000) }))
      const { plan, run } = yield* (yield* Jit).prepare(sink, new Map([[0, x]]))
      const { perIteration, perPart } = plan.programs[0]!.instructions!
      assert.deepStrictEqual([0, 1, 5].map((n) => evaluateIndex(perIteration, { n })), [0, 1000, 1000])
      assert.strictEqual(perPart, 0)
      for (const n of [8, 0, 1]) yield* run({ n })
      const sums = [...new Float32Array((yield* device.read(x, 0, 32)).slice().buffer)]
      assert.deepStrictEqual(sums, [2, 1, 1, 1, 1, 1, 1, 1])
    }).pipe(Effect.scoped, Effect.provide(Devices.wasmThreads)))

  it("counts in the plan with its own cost, or with its storage", () => {
    const bytesOf = (cost?: TensorProgram.CustomKernel["cost"], profile = wasm) => {
      const { launches } = estimateOn(programOf(addOne(), cost).sink, profile)
      return launches({ n: 5 }).map(({ bytes, micros }) => [bytes, micros])
    }
    assert.deepStrictEqual(bytesOf(), [[20, wasm.dispatchMicros + 20 / wasm.bytesPerMicro]])
    assert.deepStrictEqual(bytesOf((_, n) => ({ bytes: n!.mul(8) })), [[
      40,
      wasm.dispatchMicros + 40 / wasm.bytesPerMicro
    ]])
    assert.deepStrictEqual(bytesOf({ bytes: 7 }, h200), [[7, h200.dispatchMicros + 7 / h200.bytesPerMicro]])
  })

  it("is launched with as many workgroups as its grid says", () => {
    const source: Sources = {
      wgsl: {
        text: "@compute @workgroup_size(8) fn main() {}",
        workgroup: [8, 1, 1],
        grid: (_, n) => [n!.add(1), 2, 1]
      }
    }
    const { launches } = estimateOn(programOf(source).sink, h200)
    assert.deepStrictEqual(launches({ n: 5 }).map(({ threads, workgroups }) => [threads, workgroups]), [[8, 12]])
  })
})
