import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Spec from "@tg/core-uop/Spec"
import { toposort } from "@tg/core-uop/UOp"
import { rmsNorm } from "@tg/tensor/Nn"
import { after, assign, call, custom, type CustomKernel, make } from "@tg/tensor/Program"
import { buffer, type Tensor, variable } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { Bench } from "./evaluate.ts"

describe("programs", () => {
  it("write in place, and read afterwards", () => {
    const b = new Bench()
    const cache = b.f32([0, 0, 0, 0, 0, 0], [3, 2]).label("cache")
    const at = variable(b.arena, "at", 0, 2)
    b.vars["at"] = 1
    const write = assign(cache.slice(0, at, 1), b.f32([5, 6], [1, 2]))
    const out = b.f32([0, 0])
    const program = make([assign(out, after(cache, [write]).sum(0))])
    expect(Spec.check("tensor", program.sink)).toEqual([])
    expect(program.buffers.map((x) => [x.id, x.label, x.written])).toEqual([
      [0, "cache", true],
      [1, undefined, false],
      [2, undefined, true]
    ])
    expect(program.vars).toEqual([{ name: "at", min: 0, max: 2 }])
    evaluate([program.sink], { buffers: b.buffers, vars: b.vars })
    expect(Array.from(b.buffers.get(out.node)!)).toEqual([5, 6])
    expect(Array.from(b.buffers.get(cache.node)!)).toEqual([0, 0, 5, 6, 0, 0])
  })

  it("share one body among calls", () => {
    const b = new Bench()
    const weights = [b.f32([1, 2]), b.f32([3, 4])]
    const block = (x: Tensor, w: Tensor): Tensor =>
      call("block", [x, w], (p, g) => [rmsNorm(p!, g!, 0).label("norm")])[0]!
    const x = b.f32([1, 1])
    const out = b.f32([0, 0])
    const program = make([assign(out, weights.reduce(block, x))])
    const calls = toposort(program.sink).filter((n) => n.op === "CALL")
    expect(calls.length).toBe(2)
    expect(calls[0]!.src[0]).toBe(calls[1]!.src[0])
    expect(Spec.check("tensor", program.sink)).toEqual([])
    const [value] = b.values(weights.reduce(block, x))
    expect(value).toBeCloseTo(3 * Math.sqrt(1 / 2.5), 5) // [1, 2] / sqrt(2.5), first times 3
  })

  it("order the effects of a body through its results", () => {
    const b = new Bench()
    const state = b.f32([1, 2, 3])
    const at = variable(b.arena, "at", 0, 2)
    b.vars["at"] = 2
    const step = (x: Tensor, s: Tensor) =>
      call("step", [x, s, at], (p, st, i) => {
        const write = assign(st!.slice(0, i!, 1), p!)
        return [after(st!, [write]).sum({ axis: 0, keepDims: true }), write]
      })
    const [first, effect] = step(b.f32([10]), state)
    const [second, last] = step(first!, after(state, [effect!]))
    const out = b.f32([0])
    const program = make([assign(out, second!), last!])
    expect(Spec.check("tensor", program.sink)).toEqual([])
    expect(program.buffers.filter((x) => x.written).length).toBe(2)
    evaluate([program.sink], { buffers: b.buffers, vars: b.vars })
    expect(Array.from(b.buffers.get(out.node)!)).toEqual([1 + 2 + 13])
    expect(Array.from(b.buffers.get(state.node)!)).toEqual([1, 2, 13])
  })

  it("call hand-written kernels", () => {
    const b = new Bench()
    const twice: CustomKernel = {
      name: "twice",
      writes: [1],
      cost: { bytes: 16, flops: 2 },
      reference: ([x, y]) => x!.forEach((v, i) => (y![i] = 2 * v))
    }
    const x = b.f32([3, 4])
    const y = b.f32([0, 0])
    const effect = custom(twice, [x, y])
    const out = b.f32([0])
    const program = make([assign(out, after(y, [effect]).sum({ keepDims: true }).reshape([1]))])
    expect(Spec.check("tensor", program.sink)).toEqual([])
    expect(program.buffers.map((v) => v.written)).toEqual([false, true, true])
    evaluate([program.sink], { buffers: b.buffers })
    expect(Array.from(b.buffers.get(out.node)!)).toEqual([14])
  })

  it("refuse what has no meaning", () => {
    const b = new Bench()
    const x = b.f32([1, 2])
    expect(() => assign(x.add(1), x)).toThrow(/only storage can be written/)
    expect(() => assign(x, b.f32([1]))).toThrow(/assign.*\[2\].*\[1\]/)
    expect(() => make([x])).toThrow(/effects/)
    expect(() => make([])).toThrow(/at least one effect/)
    expect(() => call("f", [x.lt(0)], (p) => [p!])).toThrow(/stored/)
    expect(() => call("f", [x], (p) => [p!.add(x)])).toThrow(/parameters/)
    expect(() => call("f", [x.add(1)], (p) => [assign(p!, p!.mul(2))])).toThrow(/storage as argument 0/)
    expect(() => buffer(b.arena, 9, { shape: [1], dtype: DType.bool })).toThrow(/storage/)
  })
})
