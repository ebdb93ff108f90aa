/**
 * A whole model as it is compiled for a GPU with matrix units, beside one without, and with its attention in chunks as deep contexts have them (TG_FULL=1). What fragments do
 * is computed by what every device has.
 */
import { assert, describe, it } from "@effect/vitest"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import { type DeviceProfile, h200, Profile } from "@tg/core-uop/DeviceProfile"
import { Renderer } from "@tg/core-uop/Program"
import { toposort } from "@tg/core-uop/UOp"
import { ofProgram } from "../../../../packages/egraph/src/MatrixSplit.ts"
import { cheapest } from "../../../../packages/egraph/src/SplitCost.ts"
import { Split } from "../../../../packages/egraph/src/SplitStage.ts"
import { inChunks, type Parts } from "../../../../packages/egraph/src/Stored.ts"
import { fromModel } from "@tg/engine/Engine"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Models from "@tg/models/Models"
import { Device } from "@tg/runtime/Device"
import * as Testing from "@tg/runtime-webgpu/Testing"
import { Effect, Layer } from "effect"
import * as Oracle from "./support/oracle.ts"
import { open } from "./support/open.ts"

const isMissing = (await Testing.availableAdapter()) === undefined

/** Kernels with fragments that were rendered. */
let withFragments = 0

/** Renders without subgroups, whose size is another one here. */
const renderer = Layer.effect(
  Renderer,
  Effect.map(Renderer, (own) => ({
    ...own,
    render: (name, linear) =>
      Effect.suspend(() => {
        if (toposort(linear).some(({ op }) => op === "FRAGMENT")) withFragments++
        return own.render(name, linear)
      })
  }))
).pipe(Layer.provide(WgslRenderer.layer({ matrixUnits: "emulated" })))

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

/** The compiler over the software device, for what an H200 would choose, or with attention in chunks. */
const compiler = (
  { matrixUnits, parts }: Pick<DeviceProfile, "matrixUnits"> & { readonly parts: Parts | undefined }
) => {
  const device = Layer.effect(
    Device,
    Effect.map(Device, (device) => {
      const { maxBindingBytes, maxBufferBytes, maxStorageBuffers, maxWorkgroupBytes, maxWorkgroupThreads } =
        device.profile
      const limits = { maxBindingBytes, maxBufferBytes, maxStorageBuffers, maxWorkgroupBytes, maxWorkgroupThreads }
      return { ...device, profile: { ...h200, ...limits, matrixUnits } }
    })
  ).pipe(Layer.provide(Testing.layer))
  const profile = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))
  return Jit.layer.pipe(
    Layer.provide(Compiler.layer),
    Layer.provideMerge(Pipeline.layer),
    Layer.provide(parts === undefined ? Layer.empty : chunked(parts)),
    Layer.provide([renderer, profile]),
    Layer.provideMerge(device),
    Layer.merge(Models.layer)
  )
}

const each = 16
const tokenAt = (i: number): number => 3 + (Math.imul(i + 17, 0x9e3779b1) >>> 8) % 400

interface Way {
  readonly activations: "int8" | "float"
  readonly matrixUnits: boolean
  readonly parts?: Parts
  readonly count?: number
}

/** Logits after each of so many tokens but the first ones, of steps of 16. */
const logits = ({ activations, count = 32, matrixUnits, parts }: Way, from = 0) =>
  Effect.gen(function*() {
    const bytes = Oracle.source("c03")
    const shape = { context: Math.max(1024, count), chunk: each, sizes: [each], batchFrom: Infinity }
    const { session } = yield* fromModel(bytes, yield* open(bytes), { cache: "f16", activations, ...shape })
    const rows: Array<Float32Array> = []
    for (let at = 0; at < count; at += each) {
      const found = yield* session.append(Array.from({ length: each }, (_, i) => tokenAt(at + i)))
      if (at >= from) rows.push(found)
    }
    return rows.flatMap((part) => Array.from(part))
  }).pipe(Effect.scoped, Effect.provide(compiler({ matrixUnits, parts })))

describe.skipIf(isMissing)("a model on matrix units", () => {
  it.live("has logits as near those of floats as without them, where activations are bytes", () =>
    Effect.gen(function*() {
      const floats = yield* logits({ activations: "float", matrixUnits: false })
      const without = Oracle.distance(yield* logits({ activations: "int8", matrixUnits: false }), floats)
      assert.strictEqual(withFragments, 0)
      const found = Oracle.distance(yield* logits({ activations: "int8", matrixUnits: true }), floats)
      assert.isAbove(withFragments, 0)
      assert.isAbove(without.rms, 0)
      // halves have eight times the digits of bytes; what falls to the other side of a byte's border is another value of the same quality
      assert.isBelow(found.rms, 1.25 * without.rms)
    }))

  it.live.skipIf(process.env["TG_FULL"] !== "1")(
    "has them in chunks of 640, of which two share a maximum",
    () =>
      Effect.gen(function*() {
        // into the second pair of chunks, whose last one is begun
        const [count, from] = [1328, 1216]
        const floats = yield* logits({ activations: "float", count, matrixUnits: false }, from)
        const without = Oracle.distance(yield* logits({ activations: "int8", count, matrixUnits: false }, from), floats)
        const apart = yield* Effect.forEach([{ chunk: 640, parts: 2 }, { chunk: 320, parts: 4 }], (parts) =>
          Effect.map(
            logits({ activations: "int8", count, matrixUnits: true, parts }, from),
            (found) => Oracle.distance(found, floats)
          ))
        for (const { rms } of apart) assert.isBelow(rms, 1.25 * without.rms)
      })
  )
})
