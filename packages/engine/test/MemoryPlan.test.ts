import { assert, describe, it } from "@effect/vitest"
import { restrict, type Restrictions } from "@tg/core-uop/DeviceLimits"
import { type DeviceProfile, h200, Profile, wasm as wasmProfile } from "@tg/core-uop/DeviceProfile"
import { key } from "@tg/core-uop/UOp"
import * as Estimate from "@tg/jit/Estimate"
import { Pipeline } from "@tg/jit/Pipeline"
import { Device, type DeviceShape } from "@tg/runtime/Device"
import * as Reference from "@tg/runtime/Reference"
import type { ByteSource } from "@tg/gguf/ByteSource"
import * as Family from "@tg/model-parts/Family"
import { known } from "@tg/models/Models"
import { Effect, Layer, Result } from "effect"
import { fromModel } from "../src/Engine.ts"
import * as Loader from "../src/Loader.ts"
import * as MemoryPlan from "../src/MemoryPlan.ts"
import * as ActivationPolicy from "../src/ActivationPolicy.ts"
import * as Prompts from "../src/Prompts.ts"
import * as StepPlan from "../src/StepPlan.ts"
import * as StepProgram from "../src/StepProgram.ts"
import { wasmWithin } from "./support/devices.ts"
import { tiny, tinySource } from "./support/models.ts"

const context = 512
const estimated = new Map<string, Estimate.Estimate>()

/** What the compiler of a device says of programs, once of each for all tests of this file. How much memory there is does not matter to it. */
const estimateOn = (profile: DeviceProfile): Loader.Estimating => {
  const on = JSON.stringify({ ...profile, memoryBytes: undefined })
  return (sink) =>
    Effect.gen(function*() {
      const of = `${key(sink)} ${on}`
      const estimate = estimated.get(of) ?? (yield* Estimate.estimate(yield* Pipeline, sink))
      estimated.set(of, estimate)
      return estimate
    }).pipe(Effect.provide(Pipeline.layer.pipe(Layer.provide([Reference.renderer(), Profile.layer(profile)]))))
}

const setting = (restrictions: Restrictions): MemoryPlan.Setting => {
  const profile = restrict(wasmProfile, restrictions)
  const estimate = estimateOn(profile)
  const prompts = Prompts.promptShape(tiny, { asked: undefined, context, profile })
  return { profile, context, estimate, prompts, cache: "f16", activations: ActivationPolicy.activationsOn(profile) }
}

const memoryOf = (restrictions: Restrictions): MemoryPlan.Memory =>
  Effect.runSync(MemoryPlan.whole(tiny, setting(restrictions))).memory

const memoryOfTiny = memoryOf({ limits: {}, subgroups: true })

/** Notes the most bytes that are allocated at any moment. */
const watching = (seen: { most: number }) => (device: DeviceShape): DeviceShape => ({
  ...device,
  allocate: (bytes, label) =>
    Effect.tap(device.allocate(bytes, label), () =>
      Effect.sync(() => {
        seen.most = Math.max(seen.most, device.allocatedBytes())
      }))
})

/** A source that counts what is read of it. */
const counted = (source: ByteSource["Service"]) => {
  const reads = { bytes: 0 }
  const read: ByteSource["Service"]["read"] = (offset, length) => {
    reads.bytes += length
    return source.read(offset, length)
  }
  return { reads, source: { ...source, read } }
}

const within = (limits: Restrictions["limits"]): Restrictions => ({ limits, subgroups: true })

describe("the memory of tg-tiny", () => {
  for (
    const [name, restrictions] of [
      ["as it is", within({})],
      ["in windows of 256 KiB", within({ maxStorageBufferBindingSize: 2 ** 18 })]
    ] as const
  ) {
    it.live(`${name}: what is planned is what is allocated, while it loads and then`, () => {
      const seen = { most: 0 }
      return Effect.gen(function*() {
        const memory = memoryOf(restrictions)
        const wanted = tiny.weights.all.map(({ layout, name }) => ({
          layout,
          tensor: tiny.gguf.tensorsByName.get(name)!
        }))
        yield* Effect.scoped(Loader.load(tinySource, wanted))
        assert.closeTo(seen.most / (memory.weightBytes + memory.stagingBytes), 1, 0.01)
        seen.most = 0
        yield* fromModel(tinySource, tiny, { context, prepare: ["last"] })
        const steady = MemoryPlan.mostBytes(memory) - memory.stagingBytes
        assert.closeTo((yield* Device).allocatedBytes() / steady, 1, 0.01)
        // weights may be there before all programs are
        assert.isAtLeast(seen.most, 0.99 * steady)
        assert.isAtMost(seen.most, 1.01 * MemoryPlan.mostBytes(memory))
      }).pipe(Effect.scoped, Effect.provide(wasmWithin(restrictions, watching(seen))))
    })
  }

  it.live("is refused where there is less, before a byte of a tensor is read", () => {
    const memory = memoryOf(within({}))
    const most = MemoryPlan.mostBytes(memory)
    const budget = within({ memory: most - 1 })
    return Effect.gen(function*() {
      const { reads, source } = counted(tinySource)
      const error = yield* Effect.flip(fromModel(source, tiny, { context }))
      if (error._tag !== "DoesNotFit") throw error
      assert.strictEqual(reads.bytes, 0)
      assert.strictEqual((yield* Device).allocatedBytes(), 0)
      assert.deepInclude(error, { ...memory, limitBytes: most - 1 })
      assert.match(error.message, /weights 0\.00\d+ \+ cache 0\.0\d+ \+ scratch .* > 0\.0\d+ GB; use a smaller context/)
    }).pipe(Effect.scoped, Effect.provide(wasmWithin(budget)))
  })

  it.live("is enough where there is just that", () =>
    Effect.gen(function*() {
      yield* fromModel(tinySource, tiny, { context, prepare: ["last"] })
    }).pipe(Effect.scoped, Effect.provide(wasmWithin(within({ memory: MemoryPlan.mostBytes(memoryOf(within({}))) })))))
})

describe("programs of a few tokens", () => {
  const estimate = estimateOn(h200)
  const shape = Result.getOrThrow(
    Result.flatMap(Family.shapeOf(known, "youtu-llm-2b:q4_0", 1), ({ family, shape }) => family.modelOf(shape))
  )
  const size = { activations: "int8", cache: "f16", context: 256, profile: h200 } as const
  const promptsWith = (profile: DeviceProfile, context: number) =>
    Prompts.promptShape(shape, { asked: undefined, context, profile, sizes: [2, 4] })
  const prompts = promptsWith(h200, 256)
  const memoryWith = (drafts: boolean) =>
    Effect.map(MemoryPlan.whole(shape, { ...size, drafts, estimate, prompts }), ({ memory }) => memory)
  /** What they take one by one: what lives in each during a step, and the logits that it leaves. */
  const allOf = (rows: "last" | "all") =>
    Effect.forEach(prompts.sizes, (chunk) =>
      Effect.map(
        estimate(
          StepProgram.stepProgram(shape, { ...size, chunk, isWhole: true, order: "tokens", rows }).sink
        ),
        ({ blocks }) => blocks.reduce((a, b) => a + b, 0) + 4 * shape.config.vocabulary * (rows === "last" ? 1 : chunk)
      )).pipe(Effect.map((bytes) => bytes.reduce((a, b) => a + b, 0)))

  it.live("are in the plan of a device that has them, those that verify drafts too", () =>
    Effect.gen(function*() {
      const last = yield* allOf("last")
      assert.isAbove(last, 0)
      assert.closeTo((yield* memoryWith(false)).fewBytes / last, 1, 0.05)
      assert.closeTo((yield* memoryWith(true)).fewBytes / (last + (yield* allOf("all"))), 1, 0.05)
      assert.strictEqual(memoryOfTiny.fewBytes, 0)
    }))

  it.live("are what may be too much, and the error says what to lower", () =>
    Effect.gen(function*() {
      const memory = yield* memoryWith(true)
      const most = MemoryPlan.mostBytes(memory)
      const checked = (memoryBytes: number, context = 256) => {
        const profile = { ...h200, memoryBytes }
        const prompts = promptsWith(profile, context)
        return MemoryPlan.check(shape, { ...size, context, profile, drafts: true, estimate, prompts })
      }
      yield* checked(most)
      const { message } = yield* Effect.flip(checked(most - 1))
      assert.match(message, /steps of a few tokens 0\.\d+ .* GB; use a smaller context \(--context \d+ or less\)/)
      assert.include(message, "no drafts (--draft off)")
      yield* checked(most - 1, Number(/--context (\d+)/.exec(message)![1]))
    }))
})

describe("a model that is too large for a device", () => {
  const refusal = (shape: string, memory: number, context = 4096) => {
    const model = Result.getOrThrow(StepPlan.fromShape(shape, known))
    const profile = restrict(wasmProfile, within({ memory }))
    return Effect.runSync(
      Effect.flip(MemoryPlan.check(model, {
        profile,
        context,
        estimate: estimateOn(profile),
        prompts: Prompts.promptShape(model, { asked: undefined, context, profile }),
        cache: "f16",
        activations: "float"
      }))
    ).message
  }

  it("is refused by its weights alone, without looking at its kernels", () => {
    assert.match(refusal("glm-4.7-flash:q4_0", 8e9), /weights 17\.2 \+ cache 0\.225 = 17\.4 > 4\.29 GB/)
  })

  it("is refused by its cache", () => {
    assert.match(refusal("youtu-llm-2b:q4_0", 4e9, 131072), /weights 1\.\d+ \+ cache 4\.\d+ = \d\.\d+ > 4\.00 GB/)
  })
})
