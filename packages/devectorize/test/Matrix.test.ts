import { assert, describe, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import type { Opt } from "@tg/postrange/Opt"
import { apply, IllegalOpt } from "@tg/postrange/Postrange"
import { outputs, products, profile, stagesOf } from "./support/products.ts"
import { operandsOf, randomProduct } from "./support/randomProducts.ts"

describe("Matrix", () => {
  for (const { bound, inputs, kernel, name, opts } of products) {
    for (const pieces of [1, 2]) {
      it(`keeps the values of ${name} of ${pieces} pieces at every stage`, () => {
        const written = kernel()
        const { expanded, linear, opted } = stagesOf(written, opts)
        const run = (evaluate: (args: ReadonlyArray<Float32Array | Uint32Array>) => void): Float32Array => {
          const out = new Float32Array(outputs)
          evaluate([out, ...inputs])
          return out
        }
        const expected = run((args) => evaluateKernel(written, args, { pieces }))
        assert.isAbove(expected.filter((x) => x !== 0).length, 500 * pieces)
        for (const stage of [opted, expanded]) {
          assert.deepStrictEqual(run((args) => evaluateKernel(stage, args, { pieces })), expected)
        }
        const found = run((args) => evaluateLinear(linear, args, { pieces }))
        found.forEach((x, i) => assert.approximately(x, expected[i]!, bound))
      })
    }
  }

  const keeps = (seed: number, begin: number): void => {
    const { depth, kernel, lengths, opts } = randomProduct(seed, begin)
    const inputs = operandsOf(seed, lengths)
    const run = (evaluate: (args: ReadonlyArray<Float32Array | Uint32Array>) => void): Float32Array => {
      const out = new Float32Array(lengths[0]!)
      evaluate([out, ...inputs])
      return out
    }
    const expected = run((args) => evaluateKernel(kernel, args))
    const stages = stagesOf(kernel, opts, 16 << seed % 3)
    for (const stage of [stages.opted, stages.expanded]) {
      assert.deepStrictEqual(run((args) => evaluateKernel(stage, args)), expected, `seed ${seed}`)
    }
    const found = run((args) => evaluateLinear(stages.linear, args))
    // all terms are positive: each addition is off by 2^-24 of the sum
    found.forEach((x, i) => assert.approximately(x, expected[i]!, depth * 2 ** -24 * expected[i]!, `seed ${seed}`))
  }

  it("keeps the values of random products, for subgroups of 16, 32 and 64 threads", () => {
    for (let seed = 1; seed <= 24; seed++) keeps(seed, 0)
  })

  it("keeps them where neighbours in memory are no vector, since they begin between two", () => {
    for (const seed of [23, 57, 77, 2, 20]) keeps(seed, 1)
  })

  it("needs matrix units, a product of halves, and whole fragments", () => {
    const [{ kernel, opts }] = products
    const refused = (opts: ReadonlyArray<Opt>, device = profile): string | undefined => {
      const made = apply("k", kernel(), opts, device)
      return made instanceof IllegalOpt ? made.message : undefined
    }
    assert.include(refused(opts, DeviceProfile.webgpuDefault), "has no matrix units")
    assert.isUndefined(refused(opts.slice(1)))
    assert.include(refused(opts.slice(0, 3)), "whole fragments")
    assert.include(refused(opts, { ...profile, maxWorkgroupBytes: 2048 }), "bytes of workgroup memory")
  })
})
