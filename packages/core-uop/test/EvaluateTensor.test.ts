import * as DType from "@tg/core-uop/DType"
import type { Data } from "@tg/core-uop/EvaluateOps"
import { type Environment, evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Expr from "@tg/core-uop/Expr"
import type { ReduceOp } from "@tg/core-uop/Op"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { beforeEach, describe, expect, it } from "vitest"

let arena = new Arena()
let buffers = new Map<UOp, Data>()
beforeEach(() => {
  arena = new Arena()
  buffers = new Map()
})

type Dim = number | UOp
const dim = (d: Dim): UOp => typeof d === "number" ? Expr.int(arena, d) : d
const input = (data: Data, ...dims: ReadonlyArray<Dim>): UOp => {
  const dtype = data instanceof Int32Array ? DType.i32 : data instanceof Uint32Array ? DType.u32 : DType.f32
  const node = arena.make("BUFFER", dtype, dims.map(dim), { id: arena.fresh() })
  buffers.set(node, data)
  return node
}
const param = (slot: number, dtype: DType.DType, ...dims: ReadonlyArray<Dim>): UOp =>
  arena.make("PARAM", dtype, dims.map(dim), { slot })
const move = (op: "RESHAPE" | "EXPAND" | "SHRINK" | "PAD", x: UOp, ...rest: ReadonlyArray<Dim>): UOp =>
  arena.make(op, x.dtype, [x, ...rest.map(dim)])
const permute = (x: UOp, ...order: ReadonlyArray<number>): UOp => arena.make("PERMUTE", x.dtype, [x], order)
const flip = (x: UOp, ...axes: ReadonlyArray<number>): UOp => arena.make("FLIP", x.dtype, [x], axes)
const sum = (x: UOp, ...axes: ReadonlyArray<number>): UOp => reduce("ADD", x, ...axes)
const reduce = (op: ReduceOp, x: UOp, ...axes: ReadonlyArray<number>): UOp =>
  arena.make("REDUCE", x.dtype, [x], { op, axes })
const full = (dtype: DType.DType, value: number, ...dims: ReadonlyArray<Dim>): UOp =>
  arena.make("CONST", dtype, dims.map(dim), value)
const after = (buffer: UOp, ...effects: ReadonlyArray<UOp>): UOp =>
  arena.make("AFTER", buffer.dtype, [buffer, ...effects])
const f = (...x: ReadonlyArray<number>): Float32Array => Float32Array.from(x)
const square = (data: ReadonlyArray<Data>) => data[1]!.forEach((v, i) => data[0]![i] = v * v)
const iota = (n: number): Float32Array => Float32Array.from({ length: n }, (_, i) => i)

const value = (node: UOp, env: Partial<Environment> = {}): ReadonlyArray<number> => {
  expect(Spec.check("tensor", arena.make("SINK", DType.none, [node]))).toEqual([])
  return [...evaluate([node], { buffers, ...env })[0]!.data]
}

describe("leaves", () => {
  it("fills constants and counts", () => {
    expect(value(full(DType.u32, 7, 2, 2))).toEqual([7, 7, 7, 7])
    expect(value(full(DType.f32, 0.1))).toEqual([Math.fround(0.1)])
    expect(value(arena.make("IOTA", DType.index, [Expr.int(arena, 4)]))).toEqual([0, 1, 2, 3])
    expect(value(arena.make("IOTA", DType.index, [Expr.int(arena, 0)]))).toEqual([])
    expect(value(Expr.variable(arena, "v", 0, 9), { vars: { v: 5 } })).toEqual([5])
  })

  it("reads a buffer with a symbolic dimension by the strides of the largest", () => {
    const n = Expr.variable(arena, "n", 1, 4)
    const x = input(iota(12), 3, n)
    expect(value(x, { vars: { n: 2 } })).toEqual([0, 1, 4, 5, 8, 9])
    expect(value(x, { vars: { n: 4 } })).toEqual([...iota(12)])
  })

  it("says which storage is missing, too small or of another type", () => {
    const x = input(iota(3), 4)
    expect(() => value(x)).toThrow("needs 4 elements, its storage has 3")
    expect(() => evaluate([x], { buffers: new Map() })).toThrow("has no storage")
    expect(() => evaluate([x], { buffers: new Map([[x, new Uint32Array(4)]]) })).toThrow("cannot lie in a Uint32Array")
  })
})

describe("movement", () => {
  it("reshapes, expands and permutes", () => {
    const x = input(iota(6), 2, 3)
    expect(value(move("RESHAPE", x, 3, 2))).toEqual([0, 1, 2, 3, 4, 5])
    expect(value(permute(x, 1, 0))).toEqual([0, 3, 1, 4, 2, 5])
    expect(value(move("EXPAND", move("RESHAPE", x, 2, 1, 3), 2, 2, 3))).toEqual([0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5])
    expect(value(permute(move("RESHAPE", input(iota(24), 24), 2, 3, 4), 2, 0, 1)).slice(0, 7)).toEqual([
      0,
      4,
      8,
      12,
      16,
      20,
      1
    ])
  })

  it("pads with zeros, shrinks and flips", () => {
    const x = input(f(1, 2, 3, 4), 2, 2)
    expect(value(move("PAD", x, 1, 0, 0, 1))).toEqual([0, 0, 0, 1, 2, 0, 3, 4, 0])
    expect(value(move("SHRINK", x, 1, 1, 0, 2))).toEqual([3, 4])
    expect(value(flip(x, 0))).toEqual([3, 4, 1, 2])
    expect(value(flip(x, 0, 1))).toEqual([4, 3, 2, 1])
  })

  it("shrinks at a computed start", () => {
    const at = Expr.variable(arena, "at", 0, 3)
    const x = input(iota(10), 10)
    expect(value(move("SHRINK", x, Expr.mul(at, 2), 3), { vars: { at: 3 } })).toEqual([6, 7, 8])
    expect(() => value(move("SHRINK", x, Expr.mul(at, 3), 3), { vars: { at: 3 } })).toThrow("takes [9, 12)")
  })

  it("handles sizes zero and one", () => {
    const x = input(iota(0), 0, 3)
    expect(value(permute(x, 1, 0))).toEqual([])
    expect(value(move("PAD", x, 1, 0, 0, 0))).toEqual([0, 0, 0])
    expect(value(sum(x, 0))).toEqual([0, 0, 0])
    expect(value(reduce("MAX", x, 0))).toEqual([-Infinity, -Infinity, -Infinity])
    expect(value(move("RESHAPE", input(f(5), 1), 1, 1, 1))).toEqual([5])
  })

  it("refuses a reshape that loses elements", () => {
    expect(() => evaluate([move("RESHAPE", input(iota(6), 6), 4)], { buffers })).toThrow(
      "[6] has not as many elements as [4]"
    )
  })
})

describe("gather", () => {
  it("takes rows by an index of any shape and integer dtype", () => {
    const x = input(iota(6), 3, 2)
    const index = input(Uint32Array.of(2, 0, 2, 1), 2, 2)
    expect(value(arena.make("GATHER", DType.f32, [x, index]))).toEqual([4, 5, 0, 1, 4, 5, 2, 3])
    expect(value(arena.make("GATHER", DType.f32, [x, Expr.int(arena, 1)]))).toEqual([2, 3])
  })

  it("refuses a row that does not exist", () => {
    const x = input(iota(6), 3, 2)
    const gather = arena.make("GATHER", DType.f32, [x, input(Int32Array.of(0, -1), 2)])
    expect(() => value(gather)).toThrow("index -1 at position 1, but there are 3 rows")
  })
})

describe("reduction", () => {
  it("removes axes in any position", () => {
    const x = input(iota(24), 2, 3, 4)
    expect(value(sum(x, 1))).toEqual([12, 15, 18, 21, 48, 51, 54, 57])
    expect(value(sum(x, 0, 2))).toEqual([60, 92, 124])
    expect(value(sum(x, 0, 1, 2))).toEqual([276])
    expect(value(reduce("MAX", x, 2))).toEqual([3, 7, 11, 15, 19, 23])
    expect(value(reduce("MIN", x, 0))).toEqual([...iota(12)])
    expect(value(reduce("MUL", input(f(1, 2, 3), 3), 0))).toEqual([6])
  })

  it("is exact to float64 and rounds once", () => {
    const x = input(f(2 ** 24, 1, 1, -(2 ** 24)), 4)
    expect(value(sum(x, 0))).toEqual([2]) // f32 addition would lose both ones
  })

  it("wraps integers", () => {
    expect(value(sum(input(Int32Array.of(2 ** 31 - 1, 1), 2), 0))).toEqual([-(2 ** 31)])
    expect(value(sum(input(Uint32Array.of(2 ** 32 - 1, 3), 2), 0))).toEqual([2])
  })

  it("multiplies matrices", () => {
    const a = input(f(1, 2, 3, 4, 5, 6), 2, 3)
    const b = input(f(1, 0, 2, 1, 0, 3), 3, 2)
    const left = move("EXPAND", move("RESHAPE", a, 2, 1, 3), 2, 2, 3)
    const right = move("EXPAND", move("RESHAPE", permute(b, 1, 0), 1, 2, 3), 2, 2, 3)
    // row 0: 1*1+2*2+3*0, 1*0+2*1+3*3
    expect(value(sum(Expr.mul(left, right), 2))).toEqual([5, 11, 14, 23])
  })

  it("reduces booleans", () => {
    const positive = Expr.lt(full(DType.f32, 0, 3), input(f(1, -1, 2), 3))
    expect(value(reduce("MAX", positive, 0))).toEqual([1])
    expect(value(reduce("MIN", positive, 0))).toEqual([0])
  })
})

describe("precision", () => {
  it("rounds every f32 operation, unless float64 is asked for", () => {
    const x = input(f(1), 1)
    const third = Expr.alu("FDIV", x, full(DType.f32, 3, 1))
    expect(value(third)).toEqual([Math.fround(1 / 3)])
    expect(value(third, { float64: true })).toEqual([1 / 3])
  })

  it("keeps -0, NaN and infinities", () => {
    const x = input(f(-0, NaN, Infinity), 3)
    expect(value(move("RESHAPE", x, 3, 1)).map((v) => Object.is(v, -0))).toEqual([true, false, false])
    expect(value(Expr.add(x, full(DType.f32, 1, 3)))).toEqual([1, NaN, Infinity])
    expect(value(arena.make("BITCAST", DType.u32, [x]))).toEqual([0x80000000, 0x7fc00000, 0x7f800000])
  })
})

describe("effects", () => {
  it("stores into a view, in place", () => {
    const data = iota(6)
    const x = input(data, 2, 3)
    const at = Expr.variable(arena, "at", 0, 2)
    const column = move("RESHAPE", move("SHRINK", x, 0, 2, at, 1), 2)
    const done = after(x, Expr.store(column, full(DType.f32, 9, 2)))
    expect(value(done, { vars: { at: 1 } })).toEqual([0, 9, 2, 3, 9, 5])
    expect([...data]).toEqual([0, 9, 2, 3, 9, 5])
  })

  it("stores through a permutation and into symbolic rows", () => {
    const n = Expr.variable(arena, "n", 1, 4)
    const data = new Float32Array(8)
    const x = input(data, 2, n)
    evaluate([Expr.store(permute(x, 1, 0), input(f(1, 2, 3, 4, 5, 6), n, 2))], { buffers, vars: { n: 3 } })
    expect([...data]).toEqual([1, 3, 5, 0, 2, 4, 6, 0])
  })

  it("reads the buffer itself as it was, and AFTER as it is", () => {
    const x = input(f(1, 2), 2)
    const doubled = Expr.store(x, Expr.add(x, x))
    const later = after(x, doubled)
    const again = after(x, Expr.store(later, Expr.add(later, x)))
    expect(value(again)).toEqual([3, 6])
    expect([...buffers.get(x)!]).toEqual([3, 6])
  })

  it("refuses a target whose elements are not distinct places", () => {
    const x = input(f(1), 1)
    expect(() => evaluate([Expr.store(move("EXPAND", x, 2), full(DType.f32, 0, 2))], { buffers })).toThrow("not a view")
  })
})

describe("calls", () => {
  it("binds parameters, and one body serves two calls", () => {
    const p = param(0, DType.f32, 2)
    const q = param(1, DType.f32, 2)
    const body = arena.make("TUPLE", DType.none, [Expr.add(p, q), Expr.mul(p, q)])
    const call = (a: UOp, b: UOp) => arena.make("CALL", DType.none, [body, a, b], { name: "both" })
    const get = (c: UOp, i: number) => arena.make("GETTUPLE", DType.f32, [c], i)
    const x = input(f(1, 2), 2)
    const once = call(x, Expr.add(x, x))
    expect(value(get(once, 1))).toEqual([2, 8])
    expect(value(get(call(get(once, 0), get(once, 1)), 0))).toEqual([5, 14])
  })

  it("writes a body's effects through to the argument, also through a view", () => {
    const data = iota(6)
    const cache = input(data, 3, 2)
    const p = param(0, DType.f32, 2)
    const body = arena.make("TUPLE", DType.none, [after(p, Expr.store(p, Expr.add(p, full(DType.f32, 10, 2))))])
    const row = (of: UOp, i: number) => move("RESHAPE", move("SHRINK", of, i, 1, 0, 2), 2)
    const first = arena.make("CALL", DType.none, [body, row(cache, 1)], { name: "bump" })
    const result = arena.make("GETTUPLE", DType.f32, [first], 0)
    expect(value(result)).toEqual([12, 13])
    expect([...data]).toEqual([0, 1, 12, 13, 4, 5])
    // the result stands for the same storage: a second call through it writes there too
    const second = arena.make("CALL", DType.none, [body, result], { name: "bump" })
    expect(value(after(cache, second))).toEqual([0, 1, 32, 33, 4, 5])
  })

  it("runs hand-written kernels", () => {
    const out = input(new Float32Array(2), 2)
    const x = input(f(3, 4), 2)
    const kernel = arena.make("CUSTOM", DType.none, [], { name: "square" })
    const call = arena.make("CALL", DType.none, [kernel, out, x], { name: "square" })
    expect(value(after(out, call), { custom: new Map([["square", square]]) })).toEqual([9, 16])
    expect(() => value(after(out, call))).toThrow("no hand-written kernel square")
  })

  it("orders by an effect that is a result of a call, and hands a body's parameters to a hand-written kernel", () => {
    const data = f(0, 0, 0, 0)
    const out = input(data, 2, 2)
    const x = input(f(3, 4), 2)
    const kernel = arena.make("CUSTOM", DType.none, [param(0, DType.f32, 2), param(1, DType.f32, 2)], {
      name: "square",
      writes: [0]
    })
    const row = move("RESHAPE", move("SHRINK", out, 1, 1, 0, 2), 2)
    const call = arena.make("CALL", DType.none, [arena.make("TUPLE", DType.none, [kernel]), row, x], { name: "square" })
    const effect = arena.make("GETTUPLE", DType.none, [call], 0)
    expect(value(after(out, effect), { custom: new Map([["square", square]]) })).toEqual([0, 0, 9, 16])
    const column = move("RESHAPE", move("SHRINK", out, 0, 2, 1, 1), 2)
    const strided = arena.make("CALL", DType.none, [arena.make("TUPLE", DType.none, [kernel]), column, x], {
      name: "square"
    })
    expect(() => evaluate([strided], { buffers, custom: new Map([["square", square]]) })).toThrow("is not contiguous")
  })
})
