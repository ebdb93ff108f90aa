import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as DType from "@tg/core-uop/DType"
import { type DeviceProfile, h200, Profile, wasm as wasmProfile, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { fromBytes } from "@tg/gguf/ByteSource"
import * as Estimate from "@tg/jit/Estimate"
import { Pipeline } from "@tg/jit/Pipeline"
import { Device } from "@tg/runtime/Device"
import * as Reference from "@tg/runtime/Reference"
import { known } from "@tg/models/Models"
import * as TensorProgram from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { Effect, Layer, Result, Stream } from "effect"
import * as Engine from "../src/Engine.ts"
import * as ModelFile from "../src/ModelFile.ts"
import * as StepPlan from "../src/StepPlan.ts"
import * as Synthetic from "../src/Synthetic.ts"
import { wasm } from "./support/devices.ts"

/** The compiler of a device that is not there; plans without barriers do not come to its renderer. */
const pipelineFor = (profile: DeviceProfile) =>
  Pipeline.layer.pipe(Layer.provide([Reference.renderer(), Profile.layer(profile)]))

const planWith = (
  model: StepPlan.Model,
  profile: DeviceProfile,
  context: number,
  options: Pick<StepPlan.PlanOptions, "behind" | "drafts"> = {}
) =>
  Effect.flatMap(Pipeline, (pipeline) => StepPlan.plan(model, { pipeline, context, cache: "f16", ...options })).pipe(
    Effect.provide(pipelineFor(profile))
  )

const planned = new Map<string, StepPlan.StepPlan>()

/** The plan of a shape, made once for all tests of this file. */
const planOf = (shape: string, profile: DeviceProfile = h200): StepPlan.StepPlan => {
  const key = `${shape} ${JSON.stringify(profile)}`
  const plan = planned.get(key) ?? Effect.runSync(Effect.flatMap(
    Effect.fromResult(StepPlan.fromShape(shape, known)),
    (model) => planWith(model, profile, 256)
  ))
  planned.set(key, plan)
  return plan
}

/** The bytes of a synthetic file. */
const fileOf = (shape: string): Uint8Array => {
  const file = Result.getOrThrow(Synthetic.make(shape, { families: known, seed: 1 }))
  const bytes = new Uint8Array(file.size)
  let at = 0
  for (const piece of file.pieces(2 ** 16)) {
    bytes.set(piece, at)
    at += piece.length
  }
  assert.strictEqual(at, file.size)
  return bytes
}

describe("StepPlan", () => {
  it.each(
    [
      ["glm-4.7-flash:q4_0", 2.33],
      ["deepseek-v2-lite:q4_0", 1.45],
      ["youtu-llm-2b:q4_0", 1.17]
    ] as const
  )("%s reads %d GB of weights per token", (shape, gigabytes) => {
    const plan = planOf(shape)
    // published to three digits
    assert.closeTo(plan.bytesPerToken / 1e9, gigabytes, 0.005)
    // the kernels read every weight once, and a twentieth more for activations and a short cache
    assert.isAbove(plan.movedBytesPerToken, plan.bytesPerToken)
    assert.isBelow(plan.movedBytesPerToken, 1.05 * plan.bytesPerToken)
    // at least the time of the bytes alone, and of the launches alone
    assert.isAbove(plan.predictedMsPerToken, plan.movedBytesPerToken / h200.bytesPerMicro / 1000)
    assert.isAbove(plan.predictedMsPerToken, plan.dispatchesPerToken * h200.dispatchMicros / 1000)
  })

  // docs/decode-h200.md: what the GPU took for a token of 128 in one run
  it.each(
    [
      ["glm-4.7-flash:q4_0", 2.71],
      ["deepseek-v2-lite:q4_0", 1.46],
      ["youtu-llm-2b:q4_0", 1.61],
      ["llama-3.1-8b:q4_0", 2.69],
      ["qwen3-8b:q4_k_m", 3.43],
      ["qwen3-30b-a3b:q4_0", 2.42]
    ] as const
  )("%s: %d ms a token are predicted to a quarter", (shape, millis) => {
    assert.isBelow(Math.abs(planOf(shape).predictedMsPerToken / millis - 1), 0.25)
  })

  it.each(["glm-4.7-flash:q4_0", "deepseek-v2-lite:q4_0", "youtu-llm-2b:q4_0"])(
    "%s: says of every kernel why it is one",
    (shape) => {
      const { dispatchesPerToken, explain, kernels } = planOf(shape)
      const launches = explain.flatMap((body) => body.launches)
      assert.strictEqual(launches.reduce((sum, { calls }) => sum + calls, 0), dispatchesPerToken)
      // every different launch, with a boundary for each kernel that it runs
      assertEquals(new Set(launches.map(({ name }) => name)), new Set(kernels.map(({ name }) => name)))
      for (const { boundaries, name } of launches) {
        assert.strictEqual(boundaries.map(({ kernel }) => kernel).join("+"), name)
        for (const { cause, kernel, launch, placements } of boundaries) {
          // what is stored by choice was weighed against workgroup memory
          assert.strictEqual(placements.length > 0, cause._tag !== "Required", kernel)
          // the kernels of a device that joins are alone, or have a reason
          assert.notStrictEqual(launch._tag, "Alone", kernel)
        }
        assert.strictEqual(boundaries.filter(({ launch }) => launch._tag !== "Joined").length, 1, name)
      }
      // equal blocks once
      assertEquals(explain.filter(({ body }) => body === undefined).length, 1)
      const sites = explain.flatMap((body) => body.sites)
      assert.strictEqual(new Set(sites).size, sites.length)
    }
  )

  it("counts the prediction block where drafts of it are asked for", () => {
    const model = Result.getOrThrow(StepPlan.fromShape("tiny-glm-mtp:q4_0", known))
    const planned = (drafts?: StepPlan.PlanOptions["drafts"]) =>
      Effect.runSync(planWith(model, wasmProfile, 256, { drafts }))
    const [none, block] = [planned(), planned("block")]
    assert.isAbove(none.predictionBytes, 0)
    assertEquals([block.weightBytes - none.weightBytes, block.predictionBytes], [none.predictionBytes, 0])
    assert.isAbove(block.kvBytes, none.kvBytes)
    assert.strictEqual(block.memoryBytes > none.memoryBytes + none.predictionBytes, true)
  })

  it("counts launches by layer, and schedules equal blocks once", () => {
    const plan = planOf("glm-4.7-flash:q4_0")
    const [dense, ...rest] = plan.dispatchesPerLayer
    assert.strictEqual(plan.dispatchesPerLayer.length, 47)
    assert.isAbove(dense!, 0)
    assertEquals(rest, rest.map(() => rest[0]!))
    const outside = plan.dispatchesPerToken - plan.dispatchesPerLayer.reduce((a, b) => a + b, 0)
    // embedding, rotations, norm, head and sampling
    assert.isAtLeast(outside, 2)
    assert.isAtMost(outside, 12)
    // two kinds of blocks, and what stands around them
    assert.isAtMost(plan.kernels.length, dense! + rest[0]! + outside)
    assertEquals(plan.kernels.reduce((sum, k) => sum + k.calls, 0), plan.dispatchesPerToken)
    // what does not depend on each other shares a launch
    const names = plan.kernels.map(({ name }) => name)
    for (const name of ["attn_q_a_768+attn_kv_a_mqa_576", "attn_q_b_5120+cache_288"]) assert.include(names, name)
  })

  it("knows the limits of the device", () => {
    assert.strictEqual(planOf("glm-4.7-flash:q4_0").tensorsOverBinding, 0)
    // 47 x ffn_down_exps and so on: matrices of 64 experts are larger than 128 MiB in f16
    assert.isAbove(planOf("glm-4.7-flash:f16", webgpuDefault).tensorsOverBinding, 3 * 46)
  })

  it("refuses a context that the model does not have, and a step behind its end", () => {
    const model = Result.getOrThrow(StepPlan.fromShape("tiny-glm:q4_0", known))
    const refused = (context: number, behind?: number) =>
      Effect.runSync(Effect.flip(planWith(model, h200, context, { behind })))
    assert.strictEqual(refused(1e6)._tag, "ContextFull")
    assert.match(refused(64, 64).message, /holds 64 tokens and 65 were asked for/)
  })

  it.effect("predicts a step by the positions that it attends to", () =>
    Effect.gen(function*() {
      const pipeline = yield* Pipeline
      const model = yield* Effect.fromResult(StepPlan.fromShape("tiny-youtu:f16", known))
      const behind = (behind?: number) => StepPlan.plan(model, { pipeline, behind, cache: "f16", context: 256 })
      const [first, last] = [yield* behind(0), yield* behind()]
      assert.deepStrictEqual([first.behind, last.behind], [0, 255])
      assert.strictEqual(first.dispatchesPerToken, last.dispatchesPerToken)
      assert.isAbove(last.predictedMsPerToken, first.predictedMsPerToken)
    }).pipe(Effect.provide(pipelineFor(h200))))

  it.live.each(["tiny-glm:q4_0", "tiny-lite:q4_k_m", "tiny-youtu:f16"])(
    "%s: what is planned is what is allocated",
    (shape) =>
      Effect.gen(function*() {
        const source = fromBytes(shape, fileOf(shape))
        const model = yield* ModelFile.open(source)
        const engine = yield* Engine.fromModel(source, model, { cache: "f16", context: 256 })
        yield* engine.prepare("last")
        const { ioBytes, kvBytes, scratchBytes, weightBytes } = planOf(shape, wasmProfile)
        const planned = weightBytes + kvBytes + scratchBytes + ioBytes
        const allocated = (yield* Device).allocatedBytes()
        // devices round buffers up to their alignment
        assert.isAtMost(Math.abs(allocated / planned - 1), 0.01, `${allocated} instead of ${planned}`)
      }).pipe(Effect.scoped, Effect.provide(wasm))
  )
})

describe("Synthetic", () => {
  it("equal seeds give equal files", () => {
    const [a, b] = [fileOf("tiny-glm:q4_0"), fileOf("tiny-glm:q4_0")]
    assert.isTrue(Buffer.from(a.buffer).equals(Buffer.from(b.buffer)))
    const other = Result.getOrThrow(Synthetic.make("tiny-glm:q4_0", { families: known, seed: 2 }))
    const [header, embedding] = other.pieces(2 ** 16)
    assert.isTrue(Buffer.from(a.buffer).includes(header!))
    assert.isFalse(Buffer.from(a.buffer).includes(embedding!))
  })

  it.live.each(["tiny-glm:q4_k_m", "tiny-lite:q4_0", "tiny-youtu:q4_0"])(
    "%s runs: finite, varied logits",
    (shape) =>
      Effect.gen(function*() {
        const source = fromBytes(shape, fileOf(shape))
        const model = yield* ModelFile.open(source)
        const engine = yield* Engine.fromModel(source, model, { cache: "f32", context: 64 })
        const codec = yield* engine.tokenizer
        assert.isAbove(codec.encode("hello there").length, 0)
        const rows = yield* Stream.runCollect(engine.logits(codec.encode("hello there")))
        const logits = rows.flatMap((row) => [...row])
        assert.isTrue(logits.every(Number.isFinite))
        const spread = Math.sqrt(logits.reduce((sum, x) => sum + x * x, 0) / logits.length)
        // the output matrix is scaled for logits of deviation 2
        assert.isAbove(spread, 1)
        assert.isBelow(spread, 4)
      }).pipe(Effect.scoped, Effect.provide(wasm))
  )
})

describe("barriers of a step", () => {
  it.effect("are those of its kernels and of what is written by hand, in the renderer's language", () =>
    Effect.gen(function*() {
      const arena = new Arena()
      const x = Tensor.buffer(arena, 0, { shape: [4096], dtype: DType.f32 })
      const total = Tensor.buffer(arena, 1, { shape: [], dtype: DType.f32 })
      const kernel: TensorProgram.CustomKernel = {
        name: "by_hand",
        writes: [0],
        sources: {
          wgsl: { text: "workgroupBarrier(); storageBarrier();", workgroup: [64, 1, 1], grid: [1, 1, 1] }
        },
        reference: ([y]) => void y!.fill(1)
      }
      const effects = [TensorProgram.custom(kernel, [x]), TensorProgram.assign(total, x.sum())]
      const barriersFor = (target: string, sink: UOp) =>
        Effect.gen(function*() {
          const pipeline = yield* Pipeline
          const caps = { ...pipeline.caps, target }
          const { launches } = yield* Estimate.estimate(pipeline, sink)
          return yield* StepPlan.barriersOf({ ...pipeline, caps }, yield* launches({}), {})
        }).pipe(Effect.provide(pipelineFor(h200)))
      const own = yield* barriersFor("wgsl", TensorProgram.make(effects.slice(1)).sink)
      const { sink } = TensorProgram.make(effects)
      assert.strictEqual(yield* barriersFor("wgsl", sink), own + 2)
      assert.strictEqual(yield* barriersFor("elsewhere", sink), own)
    }))
})
