/** A whole model as it is compiled for a GPU with matrix units, beside one without. What fragments do is computed by what every device has. */
import { assert, describe, it } from "@effect/vitest"
import { type DeviceProfile, Profile } from "@tg/core-uop/DeviceProfile"
import { fromModel } from "@tg/engine/Engine"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Models from "@tg/models/Models"
import { Device } from "@tg/runtime/Device"
import * as Testing from "@tg/runtime-webgpu/Testing"
import { Effect, Layer } from "effect"
import { profileOf, renderer } from "../../../../packages/jit/test/support/emulated.ts"
import * as Oracle from "./support/oracle.ts"
import { open } from "./support/open.ts"

const isMissing = (await Testing.availableAdapter()) === undefined

/** Kernels with fragments that were rendered. */
let withFragments = 0

/** The compiler over the software device, for what an H200 would choose. */
const compiler = ({ matrixUnits }: Pick<DeviceProfile, "matrixUnits">) => {
  const device = Layer.effect(
    Device,
    Effect.map(Device, (device) => ({ ...device, profile: profileOf(device.profile, matrixUnits) }))
  ).pipe(Layer.provide(Testing.layer))
  const profile = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))
  return Jit.layer.pipe(
    Layer.provide(Compiler.layer),
    Layer.provideMerge(Pipeline.layer),
    Layer.provide([renderer(() => withFragments++), profile]),
    Layer.provideMerge(device),
    Layer.merge(Models.layer)
  )
}

const tokens = Array.from({ length: 32 }, (_, i) => 3 + (Math.imul(i + 17, 0x9e3779b1) >>> 8) % 400)

/** Logits after each of the tokens, of steps of 16. */
const logits = (activations: "int8" | "float", matrixUnits: boolean) =>
  Effect.gen(function*() {
    const bytes = Oracle.source("c03")
    const shape = { context: 1024, chunk: 16, sizes: [16], batchFrom: Infinity }
    const { session } = yield* fromModel(bytes, yield* open(bytes), { cache: "f16", activations, ...shape })
    const rows: Array<Float32Array> = []
    for (let at = 0; at < tokens.length; at += 16) rows.push(yield* session.append(tokens.slice(at, at + 16)))
    return rows.flatMap((part) => Array.from(part))
  }).pipe(Effect.scoped, Effect.provide(compiler({ matrixUnits })))

describe.skipIf(isMissing)("a model on matrix units", () => {
  it.live("has logits as near those of floats as without them, where activations are bytes", () =>
    Effect.gen(function*() {
      const floats = yield* logits("float", false)
      const without = Oracle.distance(yield* logits("int8", false), floats)
      assert.strictEqual(withFragments, 0)
      const found = Oracle.distance(yield* logits("int8", true), floats)
      assert.isAbove(withFragments, 0)
      assert.isAbove(without.rms, 0)
      // halves have eight times the digits of bytes; what falls to the other side of a byte's border is another value of the same quality
      assert.isBelow(found.rms, 1.25 * without.rms)
    }))
})
