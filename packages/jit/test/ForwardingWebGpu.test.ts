/** A block whose scores are a phase behind the one that writes their row of the cache: the row is forwarded. */
import { assert, describe, it } from "@effect/vitest"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import { type DeviceProfile, Profile } from "@tg/core-uop/DeviceProfile"
import * as Phases from "@tg/core-uop/Phases"
import * as Shape from "@tg/core-uop/Shape"
import { FusionCosts } from "@tg/rangeify/Fusion"
import { bufferOf, Device } from "@tg/runtime/Device"
import * as Testing from "@tg/runtime-webgpu/Testing"
import { rendererOptions, WebGpuInfo } from "@tg/runtime-webgpu/WebGpuInfo"
import type { Tensor } from "@tg/tensor/Tensor"
import { Effect, Layer } from "effect"
import { Compiler } from "../src/Compiler.ts"
import { Jit } from "../src/Jit.ts"
import * as Persistent from "../src/Persistent.ts"
import { Pipeline } from "../src/Pipeline.ts"
import { model } from "./support/stranger.ts"

const noGpu = (await Testing.availableAdapter()) === undefined

const workgroups = 2

/** The device, taken for one on which so many workgroups run at once, and of which one launch cannot bind all that a block does: words are awaited where there are two. */
const resident = (profile: DeviceProfile): DeviceProfile => ({
  ...profile,
  maxStorageBuffers: 13,
  processors: workgroups,
  gridBarrierHolds: true,
  gridBarrierWorkgroups: workgroups
})

const jit = (mode: Persistent.Mode) =>
  Layer.unwrap(Effect.gen(function*() {
    const { profile } = yield* Device
    const renderer = WgslRenderer.layer(rendererOptions(yield* WebGpuInfo, profile))
    const persistent = Layer.succeed(Persistent.Persistent, { ...Persistent.off, mode })
    return Jit.layer.pipe(
      Layer.provide(Compiler.layer),
      Layer.provide(Layer.fresh(Pipeline.layer)),
      Layer.provide([
        renderer,
        Profile.layer(resident(profile)),
        persistent,
        Layer.succeed(FusionCosts, () => undefined)
      ])
    )
  }))

const idOf = ({ node }: Tensor): number => (node.arg as { readonly id: number }).id

/** What a few tokens leave in the result and in the caches, and how many rows are forwarded in the program. */
const run = (mode: Persistent.Mode) =>
  Effect.gen(function*() {
    const device = yield* Device
    const made = model({ context: 32, heads: 4, keyHeads: 2, size: 8, width: 16 })
    const { prepare } = yield* Jit
    const buffers = new Map(
      yield* Effect.forEach(made.buffers, (x, i) =>
        Effect.gen(function*() {
          const words = Float32Array.from({ length: Shape.maxElements(x.shape) }, (_, k) => Math.sin(k * 0.7 + i) / 4)
          const buffer = yield* device.allocate(words.byteLength, `buffer ${i}`)
          yield* device.write(buffer, new Uint8Array(words.buffer))
          return [idOf(x), buffer] as const
        }))
    )
    const prepared = yield* prepare(made.sink, buffers)
    const { steps } = yield* prepared.schedule
    for (const start of [0, 1, 2, 9, 31]) yield* prepared.run({ start })
    return {
      forwards: steps.flatMap((step) =>
        step.kind === "kernel" ? Phases.phasesOf(step.ast).flatMap(Phases.forwardsOf) : []
      ).length,
      words: yield* Effect.forEach(made.buffers, (x) =>
        Effect.map(
          device.read(bufferOf(buffers.get(idOf(x))!)),
          (bytes) => [...new Float32Array(bytes.slice().buffer)]
        ))
    }
  }).pipe(Effect.scoped, Effect.provide(Layer.fresh(jit(mode))))

describe.skipIf(noGpu)("forwarded rows", () => {
  it.live("of keys have a block compute what launches one by one do", () =>
    Effect.gen(function*() {
      const want = yield* run("off")
      const found = yield* run("on")
      // keys; values are read by the next launch
      assert.deepStrictEqual([want.forwards, found.forwards], [0, 1])
      assert.deepStrictEqual(found.words, want.words)
    }).pipe(Effect.provide(Testing.layer)))
})
