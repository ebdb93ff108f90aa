import { assert, describe, it } from "@effect/vitest"
import * as Wgsl from "@tg/codegen-wgsl/Wgsl"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import { RenderError } from "@tg/core-uop/Program"
import { Effect } from "effect"
import { create } from "webgpu"
import { outputs, products, stagesOf } from "../../devectorize/test/support/products.ts"
import { operandsOf, randomProduct } from "../../devectorize/test/support/randomProducts.ts"
import * as Testing from "../src/Testing.ts"
import { launch, wordsOf } from "./support.ts"
import * as DType from "@tg/core-uop/DType"

const noGpu = (await Testing.availableAdapter()) === undefined

const rendered = (name: string, matrixUnits: Wgsl.Options["matrixUnits"]) => {
  const { kernel, opts } = products.find((product) => product.name === name)!
  const { linear } = stagesOf(kernel(), opts)
  const program = Wgsl.render(name, linear, Wgsl.caps({ halfSubnormals: true, subgroupSize: 32, matrixUnits }))
  return { linear, program }
}

const programOf = (name: string, matrixUnits: Wgsl.Options["matrixUnits"]) => {
  const { linear, program } = rendered(name, matrixUnits)
  if (program instanceof RenderError) throw program
  return { linear, program }
}

describe("kernels by matrix units", () => {
  for (const { inputs, name } of products) {
    // Dawn's null device has the feature, and no GPU: it checks text and types
    it(`compile: ${name}`, async () => {
      const { program } = programOf(name, true)
      const gpu = create(["backend=null", "enable-dawn-features=allow_unsafe_apis"])
      const adapter = await gpu.requestAdapter()
      const device = await adapter!.requestDevice({
        requiredFeatures: [
          "subgroups",
          "shader-f16",
          "subgroup-size-control",
          "chromium-experimental-subgroup-matrix"
        ] as unknown as Array<GPUFeatureName>
      })
      const module = device.createShaderModule({ code: String(program.code) })
      const { messages } = await module.getCompilationInfo()
      assert.deepStrictEqual(messages.filter(({ type }) => type === "error").map(({ message }) => message), [])
      device.destroy()
    })

    it.effect.skipIf(noGpu)(`emulated, leave what the evaluator computes: ${name}`, () =>
      Effect.gen(function*() {
        const { linear, program } = programOf(name, "emulated")
        const expected = new Float32Array(outputs)
        evaluateLinear(linear, [expected, ...inputs], { pieces: 2 })
        const [found] = yield* launch(program, [new Float32Array(outputs), ...inputs], { pieces: 2 })
        // the device may contract products and sums, and its own exp2 rounds some weight below 4 to the next half: 2^-9, of values below 1
        wordsOf(found!, DType.f32).forEach((x, i) => assert.approximately(x, expected[i]!, 2 * 2 ** -9))
      }).pipe(Effect.provide(Testing.layer)))
  }

  // seeds whose threads store single results, four neighbours, and every other one of eight
  for (const seed of [1, 23, 57, 77, 2, 20]) {
    it.effect.skipIf(noGpu)(
      `emulated, leave what the evaluator computes: random product ${seed}`,
      () =>
        Effect.gen(function*() {
          const { depth, kernel, lengths, opts } = randomProduct(seed)
          const { linear } = stagesOf(kernel, opts)
          const program = Wgsl.render(
            "product",
            linear,
            Wgsl.caps({ subgroupSize: 32, matrixUnits: "emulated", unclamped: true })
          )
          if (program instanceof RenderError) throw program
          const inputs = operandsOf(seed, lengths)
          const expected = new Float32Array(lengths[0]!)
          evaluateLinear(linear, [expected, ...inputs])
          const [found] = yield* launch(program, [new Float32Array(lengths[0]!), ...inputs])
          // all terms are positive: each addition is off by 2^-24 of the sum
          wordsOf(found!, DType.f32).forEach((x, i) =>
            assert.approximately(x, expected[i]!, depth * 2 ** -24 * expected[i]!)
          )
        }).pipe(Effect.provide(Testing.layer))
    )
  }

  it("are refused where there are none", () => {
    const { program } = rendered("scores", undefined)
    assert.instanceOf(program, RenderError)
    assert.include((program as RenderError).message, "matrix units")
  })
})
