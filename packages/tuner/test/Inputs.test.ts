import { assert, describe, it } from "@effect/vitest"
import * as Inputs from "../src/Inputs.ts"
import * as Kernels from "./support/kernels.ts"

describe("arguments", () => {
  it("have the size and the meaning that the kernel gives them", () => {
    assert.deepStrictEqual(Inputs.argumentsOf(Kernels.chosenRows()), [
      { slot: 0, scalar: "f32", words: 16, role: { kind: "output" } },
      { slot: 1, scalar: "u32", words: 2, role: { kind: "places", most: 4 } },
      { slot: 2, scalar: "u32", words: 640, role: { kind: "bits" } },
      { slot: 3, scalar: "f32", words: 16, role: { kind: "float" } }
    ])
  })
})

describe("picks", () => {
  it("is for kernels that compute what they read", () => {
    const kernels = [Kernels.pickedRows(), Kernels.chosenRows(), Kernels.product(4, 8)]
    assert.deepStrictEqual(kernels.map(Inputs.picks), [true, false, false])
  })
})

describe("words", () => {
  const make = (role: Inputs.Role, seed = 1) => Inputs.words({ role }, seed, 4096)

  it("are numbers from -1 to 1", () => {
    const floats = new Float32Array(make({ kind: "float" }).buffer)
    assert.isTrue(floats.every((x) => x >= -1 && x <= 1))
    assert.isBelow(Math.abs(floats.reduce((a, b) => a + b) / floats.length), 0.05)
  })

  it("are bits of which every half is a number from 1/8 to 2", () => {
    for (const word of make({ kind: "bits" })) {
      for (const half of [word & 0xffff, word >>> 16]) {
        const exponent = (half >> 10) & 31
        assert.isTrue(exponent >= 12 && exponent <= 15)
      }
    }
  })

  it("are places, each of few neighbours another", () => {
    const places = make({ kind: "places", most: 4 })
    assert.isTrue(places.every((x) => x <= 4))
    assert.strictEqual(new Set(places.subarray(7, 12)).size, 5)
  })

  it("depend on the seed and nothing else", () => {
    assert.deepStrictEqual(make({ kind: "bits" }, 5), make({ kind: "bits" }, 5))
    assert.notDeepEqual(make({ kind: "bits" }, 5), make({ kind: "bits" }, 6))
  })
})

describe("variables", () => {
  it("are held to their bounds, and as large as can be where nothing is given", () => {
    const kernel = Kernels.symbolic()
    assert.deepStrictEqual(
      [{ n: 5, other: 1 }, { n: 500 }, {}].map((given) => Inputs.varsOf(kernel, given)),
      [{ n: 5 }, { n: 64 }, { n: 64 }]
    )
  })
})
