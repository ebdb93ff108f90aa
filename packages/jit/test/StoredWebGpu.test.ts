/** Attention with stored scores, in chunks of as many positions as deep contexts have, on matrix units; what fragments do is computed by what every device has. */
import { assert, describe, it } from "@effect/vitest"
import { Profile } from "@tg/core-uop/DeviceProfile"
import { ofProgram } from "@tg/egraph/MatrixSplit"
import { cheapest } from "@tg/egraph/SplitCost"
import { Split } from "@tg/egraph/SplitStage"
import { inChunks, type Parts } from "@tg/egraph/Stored"
import { Device, type DeviceBuffer } from "@tg/runtime/Device"
import * as Testing from "@tg/runtime-webgpu/Testing"
import { Effect, Layer } from "effect"
import { contents, latent, ofHalves, valuesOf } from "../../egraph/test/support/latent.ts"
import { difference } from "../../egraph/test/support/programs.ts"
import { Compiler } from "../src/Compiler.ts"
import { Jit } from "../src/Jit.ts"
import { Pipeline } from "../src/Pipeline.ts"
import { profileOf, renderer } from "./support/emulated.ts"

const noGpu = (await Testing.availableAdapter()) === undefined

/** Attention in such chunks, whatever they take. */
const chunked = (parts: Parts) =>
  Layer.succeed(Split, {
    id: JSON.stringify(parts),
    split: (sink, profile) =>
      ofProgram(sink, profile, (site, profile, cascade) => ({
        ...cheapest(site, profile),
        plan: { piece: parts.chunk },
        stored: inChunks(cascade, parts)
      }))
  })

/** The compiler over the software device; `withFragments` is told of each kernel that has some. */
const compiler = (parts: Parts, withFragments: (name: string) => void) => {
  const profile = Layer.effect(Profile, Effect.map(Device, (device) => profileOf(device.profile, true)))
  return Jit.layer.pipe(
    Layer.provide(Compiler.layer),
    Layer.provide(Layer.fresh(Pipeline.layer)),
    Layer.provide([renderer(withFragments), profile, chunked(parts)]),
    Layer.provideMerge(Testing.layer)
  )
}

describe.skipIf(noGpu)("attention with stored scores on a device", () => {
  for (const parts of [{ chunk: 640, parts: 2 }, { chunk: 320, parts: 4 }]) {
    it.live(`in chunks of ${parts.chunk}, of which ${parts.parts} share a maximum`, () => {
      const kernels = new Set<string>()
      const made = latent({ tokens: 16, heads: 1, context: 1408 })
      return Effect.gen(function*() {
        const device = yield* Device
        const { prepare } = yield* Jit
        const leaves = contents(made.leaves)
        const bytesOf = (id: number) => new Uint8Array(leaves.get(made.leaves[id]!.node)!.buffer)
        const buffers = new Map<number, DeviceBuffer>()
        for (const id of made.leaves.keys()) {
          buffers.set(id, yield* device.allocate(bytesOf(id).byteLength, `leaf ${id}`))
        }
        const { run } = yield* prepare(made.sink, buffers)
        assert.isAbove(kernels.size, 1)
        // in the first chunk, behind its end, in the second maximum, and all that there is room for
        for (const start of [5, 700, 1290, 1392]) {
          // the step before has left rows in the cache
          for (const [id, buffer] of buffers) yield* device.write(buffer, bytesOf(id))
          yield* run({ start })
          const found = new Float32Array((yield* device.read(buffers.get(1)!)).slice().buffer)
          assert.isAtMost(difference(valuesOf(made, made.sink, start), [...found]), ofHalves, `behind ${start}`)
        }
      }).pipe(Effect.scoped, Effect.provide(compiler(parts, (name) => kernels.add(name))))
    })
  }
})
