import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Compiler } from "@tg/jit/Compiler"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Conformance from "@tg/runtime/Conformance"
import { Effect, Layer, Stream } from "effect"
import { Profile } from "@tg/core-uop/DeviceProfile"
import { answer } from "../src/chat.ts"
import { device, profile, renderer } from "../src/JavaScript.ts"

const tiny = fileURLToPath(new URL("../../../apps/cli/models/tg-tiny-Q4_0.gguf", import.meta.url))

const compiler = Compiler.layer.pipe(
  Layer.provide(Pipeline.layer),
  Layer.provide([renderer, Profile.layer(profile)])
)

describe("the renderer and its device", () => {
  const compile: Conformance.Compile<unknown, Compiler> = (kernel) =>
    Effect.flatMap(Compiler, ({ compile }) => compile((kernel.arg as { readonly name: string }).name, kernel))
  for (const { effect, name } of Conformance.cases(compile)) {
    it.effect(name, () => effect.pipe(Effect.provide([device, compiler])))
  }
})

describe("tg-tiny", () => {
  it.live("answers", () =>
    Effect.gen(function*() {
      assert.strictEqual(yield* Stream.mkString(answer(tiny, "What is 17 + 25?", 6)), "17 + 25")
    }))
})
