import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Wgsl from "@tg/codegen-wgsl/WgslRenderer"
import { Profile } from "@tg/core-uop/DeviceProfile"
import { fromModel } from "@tg/engine/Engine"
import * as Sampler from "@tg/engine/Sampler"
import { fromBytes } from "@tg/gguf/ByteSource"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import { Device } from "@tg/runtime/Device"
import * as Node from "@tg/runtime-webgpu/Node"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import * as WebGpu from "@tg/runtime-webgpu/WebGpu"
import { Context, Effect, Layer } from "effect"
import { open } from "./support/open.ts"

const path = new URL("../../../../test/vectors/oracle/c03.gguf", import.meta.url)
const source = fromBytes("c03", new Uint8Array(readFileSync(path)))

// Dawn's devices do not keep its entry alive
const entries: Array<GPU> = []

/** Another GPU device each time, and the compiler over it. What is made is put into `made`. */
const another = (made: Array<GPUDevice>) =>
  Effect.suspend(() => {
    const device = Layer.effectContext(Effect.gen(function*() {
      const gpu = yield* Node.entry
      entries.push(gpu)
      const adapter = yield* WebGpu.selectAdapter(gpu, { allowSoftware: true })
      const own = yield* Effect.acquireRelease(
        Effect.promise(() => adapter.requestDevice()),
        (device) => Effect.sync(() => device.destroy())
      )
      made.push(own)
      return yield* WebGpu.fromDevice(own, adapter.info)
    }))
    const profile = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))
    const renderer = Wgsl.layer({ subgroupSize: undefined, halfSubnormals: false })
    return Layer.build(
      Jit.layer.pipe(
        Layer.provide(Compiler.layer),
        Layer.provide(Pipeline.layer),
        Layer.provide([renderer, profile]),
        Layer.provideMerge(device)
      )
    )
  })

describe.skipIf((await availableAdapter()) === undefined)("a GPU that goes away", () => {
  it.live("is replaced by another one, on which the conversation goes on", () =>
    Effect.gen(function*() {
      const made: Array<GPUDevice> = []
      const rebuild = another(made)
      const first = Context.pick(Device, Jit)(yield* rebuild)
      const model = yield* open(source)
      const { session } = yield* fromModel(source, model, { context: 64, rebuild }).pipe(Effect.provide(first))
      const text = (loseAt: number) =>
        Effect.gen(function*() {
          const tokens = [1, 2, 3, 4]
          for (let i = 0; i < 5; i++) {
            // steps ahead of this one are under way
            if (i === loseAt) made.at(-1)!.destroy()
            tokens.push(yield* session.next(tokens, { ...Sampler.greedy, temperature: 0.8, seed: 1 }))
          }
          yield* session.reset
          return tokens
        })
      const whole = yield* text(Infinity)
      assert.strictEqual(made.length, 1)
      assertEquals(yield* text(3), whole)
      assert.strictEqual(made.length, 2)
    }).pipe(Effect.scoped))
})
