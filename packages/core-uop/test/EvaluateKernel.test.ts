import * as DType from "@tg/core-uop/DType"
import { evaluateKernel, type Options } from "@tg/core-uop/EvaluateKernel"
import type { Data } from "@tg/core-uop/EvaluateOps"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Expr from "@tg/core-uop/Expr"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, type Axis, type UOp } from "@tg/core-uop/UOp"
import { beforeEach, describe, expect, it } from "vitest"

let arena = new Arena()
beforeEach(() => {
  arena = new Arena()
})

const param = (slot: number, dtype: DType.DType, length: number): UOp =>
  arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })
const range = (size: UOp | number, axis: Axis = "GLOBAL"): UOp => Expr.range(arena, size, arena.fresh(), axis)
const at = (buffer: UOp, index: UOp | number, gate?: UOp): UOp =>
  Expr.element(buffer, typeof index === "number" ? Expr.int(arena, index) : index, gate)
const end = (store: UOp, ...ranges: ReadonlyArray<UOp>): UOp => arena.make("END", DType.none, [store, ...ranges])
const adds = (target: UOp, value: UOp): UOp => arena.make("STORE", DType.none, [target, value], { op: "ADD" })
const kernel = (...ends: ReadonlyArray<UOp>): UOp => arena.make("SINK", DType.none, ends, { name: "test" })
const special = (name: string, size: number): UOp =>
  arena.make("SPECIAL", DType.index, [Expr.int(arena, size)], { name })
const f = (...x: ReadonlyArray<number>): Float32Array => Float32Array.from(x)

const run = (
  stage: Spec.Stage,
  node: UOp,
  args: ReadonlyArray<Data>,
  vars: Readonly<Record<string, number>> = {},
  options: Options = {}
): ReadonlyArray<number> => {
  expect(Spec.check(stage, node)).toEqual([])
  evaluateKernel(node, args, vars, { checkWrites: true, ...options })
  return [...args[0]!]
}

describe("kernel stage", () => {
  it("evaluates an elementwise kernel", () => {
    const i = range(3)
    const x = Expr.load(at(param(1, DType.f32, 3), i))
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 3), i), Expr.mul(Expr.add(x, 1), x)), i))
    expect(run("kernel", ast, [new Float32Array(3), f(1, 2, 3)])).toEqual([2, 6, 12])
  })

  it("stores one element without any loop", () => {
    const ast = kernel(end(Expr.store(at(param(0, DType.i32, 2), 1), Expr.constant(arena, DType.i32, -4))))
    expect(run("kernel", ast, [new Int32Array(2)])).toEqual([0, -4])
  })

  it("sums a product with whatever block size", () => {
    const [m, n, k] = [3, 5, 7]
    const i = range(m)
    const j = range(n)
    const r = range(k, "REDUCE")
    const a = Expr.load(at(param(1, DType.f32, m * k), Expr.add(Expr.mul(i, k), r)))
    const b = Expr.load(at(param(2, DType.f32, k * n), Expr.add(Expr.mul(r, n), j)))
    const dot = Expr.reduce("ADD", Expr.mul(a, b), [r])
    const scaled = Expr.mul(dot, Expr.cast(i, DType.f32))
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, m * n), Expr.add(Expr.mul(i, n), j)), scaled), i, j))
    const left = Float32Array.from({ length: m * k }, (_, x) => (x * 7) % 11 - 5)
    const right = Float32Array.from({ length: k * n }, (_, x) => (x * 5) % 13 - 6)
    const wanted = Array.from({ length: m * n }, (_, p) => {
      let total = 0
      for (let q = 0; q < k; q++) total += left[Math.floor(p / n) * k + q]! * right[q * n + p % n]!
      return total * Math.floor(p / n) + 0
    })
    for (const blockElements of [1, 7, 10, 16, 36, 50, 1000]) {
      const got = run("kernel", ast, [new Float32Array(m * n), left, right], {}, { blockElements })
      expect(got.map((v) => v + 0), `blocks of ${blockElements}`).toEqual(wanted)
    }
  })

  it("agrees with the tensor stage bit for bit on a softmax of odd size", () => {
    const [rows, width] = [5, 9]
    const data = Float32Array.from({ length: rows * width }, (_, i) => Math.sin(i * 3) * 4)
    const shaped = (n: UOp, ...dims: ReadonlyArray<number>) =>
      arena.make("EXPAND", n.dtype, [
        arena.make("RESHAPE", n.dtype, [n, Expr.int(arena, rows), Expr.int(arena, 1)]),
        ...dims.map((d) => Expr.int(arena, d))
      ])
    const x = arena.make("BUFFER", DType.f32, [Expr.int(arena, rows), Expr.int(arena, width)], { id: 0 })
    const tensorReduce = (op: string, n: UOp) => arena.make("REDUCE", DType.f32, [n], { op, axes: [1] })
    const e = Expr.alu("EXP2", Expr.sub(x, shaped(tensorReduce("MAX", x), rows, width)))
    const tensor = Expr.fdiv(e, shaped(tensorReduce("ADD", e), rows, width))
    const wanted = evaluate([tensor], { buffers: new Map([[x, data]]) })[0]!.data

    const i = range(rows)
    const j = range(width)
    const load = (column: UOp) => Expr.load(at(param(1, DType.f32, rows * width), Expr.add(Expr.mul(i, width), column)))
    const r = range(width, "REDUCE")
    const top = Expr.reduce("MAX", load(r), [r])
    const s = range(width, "REDUCE")
    const total = Expr.reduce("ADD", Expr.alu("EXP2", Expr.sub(load(s), top)), [s])
    const soft = Expr.fdiv(Expr.alu("EXP2", Expr.sub(load(j), top)), total)
    const ast = kernel(
      end(Expr.store(at(param(0, DType.f32, rows * width), Expr.add(Expr.mul(i, width), j)), soft), i, j)
    )
    for (const blockElements of [8, 100, 4096]) {
      expect(run("kernel", ast, [new Float32Array(rows * width), data], {}, { blockElements })).toEqual([...wanted])
    }
  })

  it("reduces over two loops of which the value uses one", () => {
    const r = range(3, "REDUCE")
    const s = range(4, "REDUCE")
    const value = Expr.reduce("ADD", Expr.load(at(param(1, DType.f32, 3), r)), [r, s])
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 1), 0), value)))
    expect(run("kernel", ast, [new Float32Array(1), f(1, 2, 3)])).toEqual([24])
  })

  it("nests reductions", () => {
    const r = range(3, "REDUCE")
    const s = range(2, "REDUCE")
    const inner = Expr.reduce("MAX", Expr.load(at(param(1, DType.f32, 6), Expr.add(Expr.mul(r, 2), s))), [s])
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 1), 0), Expr.reduce("ADD", inner, [r]))))
    expect(run("kernel", ast, [new Float32Array(1), f(1, 5, 9, 2, 3, 4)])).toEqual([18])
  })

  it("takes loop sizes from variables, and zero of them", () => {
    const n = Expr.variable(arena, "n", 0, 8)
    const i = range(n)
    const r = range(n, "REDUCE")
    const count = Expr.reduce("ADD", Expr.constant(arena, DType.f32, 1), [r])
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 8), i), count), i))
    expect(run("kernel", ast, [new Float32Array(8)], { n: 3 })).toEqual([3, 3, 3, 0, 0, 0, 0, 0])
    expect(run("kernel", ast, [new Float32Array(2)], { n: 0 })).toEqual([0, 0])
    const empty = kernel(end(Expr.store(at(param(0, DType.f32, 1), 0), count)))
    expect(run("kernel", empty, [f(5)], { n: 0 })).toEqual([0])
    expect(() => run("kernel", ast, [new Float32Array(8)])).toThrow("no value for the variable n")
  })

  it("reads zero, and nothing, where the gate is false", () => {
    const i = range(5)
    const inside = Expr.and(Expr.lt(Expr.int(arena, 0), i), Expr.lt(i, 4))
    const x = Expr.load(at(param(1, DType.f32, 3), Expr.sub(i, 1), inside))
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 5), i), x), i))
    expect(run("kernel", ast, [f(9, 9, 9, 9, 9), f(1, 2, 3)])).toEqual([0, 1, 2, 3, 0])
  })

  it("writes nothing where the gate is false", () => {
    const i = range(5)
    const gate = Expr.lt(i, 2)
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 2), i, gate), Expr.cast(i, DType.f32)), i))
    expect(run("kernel", ast, [f(7, 7)])).toEqual([0, 1])
  })

  it("names slot and element of an access outside a buffer", () => {
    const i = range(4)
    const x = Expr.load(at(param(1, DType.f32, 3), i))
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 4), i), x), i))
    expect(() => run("kernel", ast, [new Float32Array(4), f(1, 2, 3)])).toThrow(
      "slot 1: element 3 is outside the 3 elements"
    )
    const low = kernel(end(Expr.store(at(param(0, DType.f32, 4), Expr.sub(i, 1)), Expr.cast(i, DType.f32)), i))
    expect(() => run("kernel", low, [new Float32Array(4)])).toThrow("slot 0: element -1 is outside the 4 elements")
  })

  it("notices two iterations that write different values to one element", () => {
    const i = range(4)
    const value = Expr.cast(Expr.floordiv(i, 2), DType.f32)
    const clash = kernel(end(Expr.store(at(param(0, DType.f32, 2), Expr.floormod(i, 2)), value), i))
    expect(() => run("kernel", clash, [new Float32Array(2)])).toThrow(
      "slot 0: element 0 is written twice, 0 and then 1"
    )
    const same = kernel(end(Expr.store(at(param(0, DType.f32, 2), Expr.floordiv(i, 2)), value), i))
    expect(run("kernel", same, [new Float32Array(2)])).toEqual([0, 1])
  })

  it("adds row by row, also what does not depend on the row, and nothing where the gate is false", () => {
    const [j, r] = [range(2), range(3, "REDUCE")]
    const row = Expr.cast(Expr.load(at(param(1, DType.u32, 3), r)), DType.index)
    const place = Expr.add(Expr.mul(Expr.where(Expr.lt(row, 2), row, Expr.int(arena, 0)), 2), j)
    const added = (value: UOp): UOp =>
      kernel(end(adds(at(param(0, DType.f32, 4), place, Expr.lt(row, 2)), value), j, r))
    const rows = Uint32Array.of(1, 9, 1)
    const value = Expr.load(at(param(2, DType.f32, 6), Expr.add(Expr.mul(r, 2), j)))
    expect(run("kernel", added(value), [f(1, 2, 3, 4), rows, f(1, 2, 3, 4, 5, 6)])).toEqual([1, 2, 9, 12])
    const same = kernel(end(adds(at(param(0, DType.f32, 2), j), Expr.constant(arena, DType.f32, 2)), j, r))
    expect(run("kernel", same, [f(1, 2)])).toEqual([7, 8])
  })

  it("notices iterations of several threads that add to one element, unless they add atomically", () => {
    const [j, r] = [range(2), range(3)]
    const row = Expr.cast(Expr.load(at(param(1, DType.u32, 3), r)), DType.index)
    const added = (out: UOp): UOp =>
      kernel(end(adds(at(out, Expr.add(Expr.mul(row, 2), j)), Expr.constant(arena, DType.u32, 1)), j, r))
    const plain = added(param(0, DType.u32, 4))
    const rows = Uint32Array.of(1, 0, 1)
    expect(Spec.check("kernel", plain)[0]!.reason).toContain("are independent, and may add to one element")
    expect(() => evaluateKernel(plain, [new Uint32Array(4), rows])).toThrow(
      "slot 0: threads 0 and 4 add to element 2, and not atomically"
    )
    const atomic = arena.make("PARAM", DType.u32, [Expr.int(arena, 4)], { slot: 0, coherent: true })
    expect(run("kernel", added(atomic), [new Uint32Array(4), rows])).toEqual([1, 1, 2, 2])
  })

  it("refuses a plain store in a loop whose iterations are combined", () => {
    const r = range(3, "REDUCE")
    const last = kernel(end(Expr.store(at(param(0, DType.f32, 1), 0), Expr.cast(r, DType.f32)), r))
    expect(Spec.check("kernel", last)[0]!.reason).toContain("does not accumulate")
  })

  it("sees the same bytes through PARAMs of two dtypes", () => {
    const i = range(2)
    const bits = Expr.load(at(param(1, DType.u32, 2), i))
    const ast = kernel(end(Expr.store(at(param(0, DType.u32, 2), i), bits), i))
    const out = new Float32Array(2)
    run("kernel", ast, [out, f(1, -2)])
    expect([...out]).toEqual([1, -2])
  })

  it("runs several stores, one after the other", () => {
    const i = range(2)
    const x = Expr.load(at(param(2, DType.f32, 2), i))
    const ast = kernel(
      end(Expr.store(at(param(0, DType.f32, 2), i), Expr.neg(x)), i),
      end(Expr.store(at(param(1, DType.f32, 2), i), Expr.mul(x, x)), i)
    )
    const args = [new Float32Array(2), new Float32Array(2), f(3, 4)]
    expect(run("kernel", ast, args)).toEqual([-3, -4])
    expect([...args[1]!]).toEqual([9, 16])
  })

  it("keeps float64 between load and store when asked", () => {
    const x = Expr.load(at(param(1, DType.f32, 1), 0))
    const value = Expr.sub(Expr.add(x, 2 ** -30), x)
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 1), 0), value)))
    expect(run("kernel", ast, [new Float32Array(1), f(1)])).toEqual([0])
    expect(run("kernel", ast, [new Float32Array(1), f(1)], {}, { float64: true })).toEqual([2 ** -30])
  })

  it("says which argument is missing", () => {
    const ast = kernel(end(Expr.store(at(param(3, DType.f32, 1), 0), Expr.constant(arena, DType.f32, 1))))
    expect(() => evaluateKernel(ast, [])).toThrow("no argument for slot 3")
  })
})

describe("opted stage", () => {
  it("gives the same values whatever the axes are called", () => {
    const axes: ReadonlyArray<readonly [Axis, Axis, Axis]> = [
      ["GLOBAL", "LOCAL", "REDUCE"],
      ["GLOBAL", "UPCAST", "GROUP"],
      ["LOOP", "LOCAL", "UNROLL"]
    ]
    for (const [a, b, c] of axes) {
      const i = range(2, a)
      const j = range(3, b)
      const r = range(4, c)
      const index = Expr.add(Expr.mul(i, 3), j)
      const x = Expr.load(at(param(1, DType.f32, 24), Expr.add(Expr.mul(index, 4), r)))
      const ast = kernel(end(Expr.store(at(param(0, DType.f32, 6), index), Expr.reduce("ADD", x, [r])), i, j))
      const data = Float32Array.from({ length: 24 }, (_, n) => n)
      expect(run("opted", ast, [new Float32Array(6), data])).toEqual([6, 22, 38, 54, 70, 86])
    }
  })
})

describe("expanded stage", () => {
  it("evaluates every thread of the grid", () => {
    const g = special("gidx0", 3)
    const l = special("lidx0", 4)
    const i = Expr.add(Expr.mul(g, 4), l)
    const value = Expr.cast(Expr.mul(i, i), DType.f32)
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 12), i), value)))
    for (const blockElements of [1, 5, 100]) {
      expect(run("expanded", ast, [new Float32Array(12)], {}, { blockElements })).toEqual(
        Array.from({ length: 12 }, (_, n) => n * n)
      )
    }
  })

  it("combines over the threads of a group, and gives every thread the result", () => {
    // 2 groups of 4 threads in a workgroup, 3 workgroups: lidx0 = local * 4 + g
    const wg = special("gidx0", 3)
    const t = special("lidx0", 8)
    const partial = Expr.load(at(param(1, DType.f32, 24), Expr.add(Expr.mul(wg, 8), t)))
    const total = arena.make("GROUP_REDUCE", DType.f32, [partial], { op: "ADD", threads: 4 })
    const all = kernel(end(Expr.store(at(param(0, DType.f32, 24), Expr.add(Expr.mul(wg, 8), t)), total)))
    const data = Float32Array.from({ length: 24 }, (_, n) => n)
    const wanted = Array.from({ length: 24 }, (_, n) => Math.floor(n / 4) * 16 + 6)
    for (const blockElements of [1, 8, 1000]) {
      expect(run("expanded", all, [new Float32Array(24), data], {}, { blockElements })).toEqual(wanted)
    }
    const one = Expr.floordiv(t, 4)
    const out = at(param(0, DType.f32, 6), Expr.add(Expr.mul(wg, 2), one))
    expect(run("expanded", kernel(end(Expr.store(out, total))), [new Float32Array(6), data])).toEqual([
      6,
      22,
      38,
      54,
      70,
      86
    ])
  })

  it("adds a value that is the same for all threads once per thread", () => {
    const t = special("lidx0", 4)
    const total = arena.make("GROUP_REDUCE", DType.f32, [Expr.constant(arena, DType.f32, 2)], { op: "ADD", threads: 4 })
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 4), t), total)))
    expect(run("expanded", ast, [new Float32Array(4)])).toEqual([8, 8, 8, 8])
  })

  it("loads, computes, reduces and stores vectors", () => {
    const i = range(2, "LOOP")
    const r = range(3, "REDUCE")
    const x = Expr.load(at(param(1, DType.f32, 24), Expr.mul(Expr.add(Expr.mul(r, 2), i), 4)), 4)
    const total = Expr.reduce("ADD", Expr.mul(x, 2), [r])
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 8), Expr.mul(i, 4)), total), i))
    const data = Float32Array.from({ length: 24 }, (_, n) => n)
    // element e sums 2 * (e + 8 r) over r = 0..2
    expect(run("expanded", ast, [new Float32Array(8), data])).toEqual(Array.from({ length: 8 }, (_, e) => 6 * e + 48))
  })

  it("builds vectors and takes lanes out", () => {
    const i = range(3, "LOOP")
    const v = Expr.load(at(param(1, DType.f32, 6), Expr.mul(i, 2)), 2)
    const swapped = arena.make("STACK", DType.make("f32", 2), [Expr.lane(v, 1), Expr.cast(i, DType.f32)])
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 6), Expr.mul(i, 2)), swapped), i))
    expect(run("expanded", ast, [new Float32Array(6), f(1, 2, 3, 4, 5, 6)])).toEqual([2, 0, 4, 1, 6, 2])
  })

  it("stores several values in one loop, each where its own axes say", () => {
    const i = range(6, "LOOP")
    const x = Expr.load(at(param(2, DType.f32, 6), i))
    const total = (() => {
      const r = range(6, "REDUCE")
      return Expr.reduce("ADD", Expr.load(at(param(2, DType.f32, 6), r)), [r])
    })()
    const scaled = at(param(0, DType.f32, 6), i)
    const stores = [
      Expr.store(at(param(1, DType.f32, 1), 0), total),
      // in place: doing it twice would show
      Expr.store(scaled, Expr.add(Expr.load(scaled), Expr.mul(x, total)))
    ]
    const ast = kernel(end(arena.make("TUPLE", DType.none, stores), i))
    for (const blockElements of [1, 4, 100]) {
      const args = [f(1, 1, 1, 1, 1, 1), f(0), f(1, 2, 3, 4, 5, 6)]
      expect(run("expanded", ast, args, {}, { blockElements })).toEqual([22, 43, 64, 85, 106, 127])
      expect([...args[1]!]).toEqual([21])
    }
  })

  it("refuses a vector that does not start at a multiple of its lanes", () => {
    const v = Expr.load(at(param(1, DType.f32, 8), 2), 4)
    const ast = kernel(end(Expr.store(at(param(0, DType.f32, 4), 0), v)))
    expect(() => run("expanded", ast, [new Float32Array(4), new Float32Array(8)])).toThrow(
      "slot 1: 4 lanes at element 2, which is not a multiple of 4"
    )
  })
})
