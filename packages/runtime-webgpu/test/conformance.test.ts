import * as Wgsl from "@tg/codegen-wgsl/Wgsl"
import { assert, describe, layer } from "@effect/vitest"
import { Spec } from "@tg/core-uop"
import { RenderError } from "@tg/core-uop/Program"
import * as Conformance from "@tg/runtime/Conformance"
import { Effect } from "effect"
import * as Testing from "../src/Testing.ts"
import { lower } from "./lower.ts"

const noGpu = (await Testing.availableAdapter()) === undefined

describe.skipIf(noGpu)("the device contract", () => {
  layer(Testing.layer)((it) => {
    const cases = Conformance.cases((kernel) => {
      const linear = lower(kernel)
      assert.deepStrictEqual(Spec.check("linear", linear), [])
      const program = Wgsl.render((kernel.arg as { name: string }).name, linear, Wgsl.caps())
      return program instanceof RenderError ? Effect.fail(program) : Effect.succeed(program)
    })
    for (const { effect, name } of cases) it.effect(name, () => effect)
  })
})
