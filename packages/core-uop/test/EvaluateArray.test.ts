import * as DType from "@tg/core-uop/DType"
import type * as EvaluateArray from "@tg/core-uop/EvaluateArray"
import { afterEach, describe, expect, it, vi } from "vitest"

afterEach(() => {
  vi.unstubAllGlobals()
  vi.resetModules()
})

const results = (array: typeof EvaluateArray) => {
  const sums = new Float32Array(12)
  array.zip("ADD", DType.f32, DType.f32, sums, { outer: 2, middle: 3, inner: 2 }, [
    { data: Float32Array.of(0, 100), outer: 1, middle: 0, inner: 0 },
    { data: Float32Array.of(1, 2, 3, 4, 5, 6), outer: 0, middle: 2, inner: 1 }
  ])
  const columns = new Float32Array(4)
  array.reduce("MAX", DType.f32, columns, sums, { outer: 2, count: 3, inner: 2 })
  const turned = new Float32Array(6)
  array.copyOut(turned, sums, { shape: [2, 3], strides: [1, 2], offset: 6 })
  return [[...sums], [...columns], [...turned]]
}

const wanted = [
  [1, 2, 3, 4, 5, 6, 101, 102, 103, 104, 105, 106],
  [5, 6, 105, 106],
  [101, 103, 105, 102, 104, 106]
]

describe("loops", () => {
  it("run over strided operands, reduce the middle axis and copy a strided box", async () => {
    expect(results(await import("@tg/core-uop/EvaluateArray"))).toEqual(wanted)
  })

  it("do the same where code generation is forbidden", async () => {
    vi.stubGlobal("Function", () => {
      throw new EvalError("refused by policy")
    })
    expect(results(await import("@tg/core-uop/EvaluateArray"))).toEqual(wanted)
  })
})
