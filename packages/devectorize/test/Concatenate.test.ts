import { assert, describe, expect, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import * as Expr from "@tg/core-uop/Expr"
import { evaluateIndex, signature } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { concatenate, type Part } from "../src/Concatenate.ts"
import * as Kernels from "./support/kernels.ts"
import { listing } from "./support/listing.ts"
import { gpu, linear } from "./support/stages.ts"

const { group, local, loop, unroll, upcast } = Opt
const vars = { n: 5, m: 3 }

const slotOf = (param: UOp): number => (param.arg as { readonly slot: number }).slot
const paramsOf = (kernel: UOp): ReadonlyArray<UOp> => toposort(kernel).filter((node) => node.op === "PARAM")

/** Arguments of a linear kernel: inputs whose sums are exact, and NaN where something is stored. */
const argumentsOf = (kernel: UOp): Map<number, Float32Array> => {
  const written = new Set(signature(kernel).bindings.filter((b) => b.access === "write").map((b) => b.slot))
  return new Map(
    paramsOf(kernel).map((p) => [
      slotOf(p),
      Float32Array.from(
        { length: Number(p.src[0]!.arg) },
        (_, i) => written.has(slotOf(p)) ? NaN : (i * 13 + slotOf(p) * 7) % 29 - 14
      )
    ])
  )
}

const runAll = (linears: ReadonlyArray<Part>, args: Map<number, Float32Array>): Map<number, Float32Array> => {
  for (const part of linears) {
    const own = part.slots.flatMap((slot, i) => args.has(slot) ? [[i, args.get(slot)!] as const] : [])
    evaluateLinear(part.linear, new Map(own), vars)
  }
  return args
}

const run = (one: UOp): Map<number, Float32Array> => {
  const args = argumentsOf(one)
  evaluateLinear(one, args, vars)
  return args
}

type Kernel = readonly [keyof typeof kernels, ReadonlyArray<Opt.Opt>]
const kernels = {
  elementwise: Kernels.elementwise,
  sums: Kernels.sums,
  twoReductions: Kernels.twoReductions,
  twoLengths: Kernels.twoLengths,
  symbolic: Kernels.symbolic
}

/** Linear kernels in one arena, each with arguments of its own. */
const parts = (list: ReadonlyArray<Kernel>, subgroupSize?: number): ReadonlyArray<Part> => {
  const arena = new Arena()
  return list.map(([name, opts], i) => ({
    linear: linear(kernels[name](arena), opts, { ...gpu, subgroupSize }),
    slots: [0, 1, 2].map((slot) => 10 * i + slot)
  }))
}

const joined = (linears: ReadonlyArray<Part>, maxGrid = 65535): UOp => {
  const made = concatenate(linears, { caps: gpu, maxGrid })
  assert.deepStrictEqual(Spec.check("linear", made), [])
  return made
}

describe("concatenate", () => {
  const lists: ReadonlyArray<ReadonlyArray<Kernel>> = [
    // one thread beside one thread, equal kernels
    [["elementwise", []], ["elementwise", []]],
    // threads that wait, in the first and in the last
    [["elementwise", [local(1, 8)]], ["sums", []]],
    [["sums", []], ["elementwise", [local(1, 8)]], ["sums", [local(0, 2)]]],
    // barriers beside more threads and beside fewer
    [["sums", [group(1, 8)]], ["elementwise", [local(1, 4)]]],
    [["sums", [group(1, 4)]], ["twoReductions", [group(1, 16), group(2, 16)]]],
    // loops, vectors, memory that is used again
    [["sums", [loop(0, 6), group(1, 8)]], ["sums", [unroll(1, 4), group(1, 8)]]],
    [["sums", [upcast(0, 2), group(1, 16)]], ["twoLengths", [group(1, 3), local(0, 2), upcast(0, 2)]]],
    // grids that are known at launch
    [["symbolic", []], ["sums", [group(1, 8)]], ["symbolic", [group(1, 8)]]],
    [["sums", [local(0, 3)]], ["symbolic", [group(1, 4)]], ["elementwise", []]]
  ]
  const describeOpts = (list: ReadonlyArray<Kernel>): string =>
    list.map(([name, opts]) => `${name}(${opts.map(Opt.print).join(", ")})`).join(" + ")

  for (const list of lists) {
    it(`keeps the values of ${describeOpts(list)}`, () => {
      for (const subgroupSize of [undefined, 4, 8, 32]) {
        const linears = parts(list, subgroupSize)
        const want = runAll(linears, argumentsOf(joined(linears)))
        for (const maxGrid of [65535, 8, 3]) {
          const one = joined(linears, maxGrid)
          assert.deepStrictEqual(run(one), want)
          assert.isAtMost(evaluateIndex(signature(one).grid[0], vars), maxGrid)
        }
      }
    })
  }

  it("launches as many workgroups as all together, with the threads of the largest", () => {
    const linears = parts([["sums", [group(1, 8)]], ["elementwise", [local(1, 4)]], ["symbolic", []]])
    const { grid, workgroup } = signature(joined(linears))
    assert.deepStrictEqual(workgroup, [8, 1, 1])
    assert.deepStrictEqual(grid.map((size) => evaluateIndex(size, vars)), [6 + 12 + 5, 1, 1])
  })

  it("brings whole groups of threads to subgroup operations", () => {
    // 12 threads beside a subgroup of 8
    const linears = parts([["elementwise", [local(0, 3), local(1, 4)]], ["sums", [group(1, 8)]]], 8)
    assert.strictEqual(signature(joined(linears)).workgroup[0], 16)
    const one = joined(linears)
    assert.deepStrictEqual(run(one), runAll(linears, argumentsOf(one)))
  })

  it("gives the workgroup memory of one to the others", () => {
    const bytes = (one: UOp): number =>
      one.src.filter((node) => node.op === "LOCAL").reduce((sum, n) => sum + (n.arg as { length: number }).length, 0)
    const linears = parts([["sums", [group(1, 8)]], ["sums", [group(1, 32)]], ["twoReductions", [
      group(1, 16),
      group(2, 16)
    ]]])
    assert.deepStrictEqual(linears.map((part) => bytes(part.linear)), [8, 32, 32])
    assert.strictEqual(bytes(joined(linears)), 32 + 16)
  })

  it("reads what both read in each of the branches", () => {
    const arena = new Arena()
    const param = (slot: number): UOp => arena.make("PARAM", DType.f32, [Expr.int(arena, 4)], { slot })
    const first = Expr.load(Expr.element(param(1), Expr.int(arena, 0)))
    const kernel = (slot: number, factor: number): UOp => {
      const i = Expr.range(arena, 4, 0, "GLOBAL")
      const store = Expr.store(Expr.element(param(slot), i), Expr.mul(first, factor))
      return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])])
    }
    const linears = [kernel(0, 2), kernel(2, 3)].map((k) => ({ linear: linear(k, [], gpu), slots: [0, 1, 2] }))
    const one = joined(linears)
    assert.strictEqual(one.src.filter((node) => node === first).length, 2)
    assert.deepStrictEqual(run(one), runAll(linears, argumentsOf(one)))
  })

  it("branches on the number of the workgroup", () => {
    expect(`\n${listing(joined(parts([["sums", [group(1, 8)]], ["elementwise", [local(1, 4)]]]))).join("\n")}\n`)
      .toMatchInlineSnapshot(`
        "
        gidx0 < 18
        v0: bool = gidx0 < 6
        lidx0 < 8
        v1: bool = lidx0 < 4
        v2: bool = v0 ^ true
        v3: bool = v2 & v1
        shared0: f32 = 8 elements
        v4: void = if(v0)
        v5: bool = lidx0 < 1
        reg0: f32 = 0
        i0: index = gidx0 * 32
        i1: index = i0 + lidx0
        for r1 < 4 REDUCE
          i2: index = r1 * 8
          i3: index = i1 + i2
          v6: f32 = p1[i3]
          reg0 = reg0 ADD v6
        shared0[lidx0] = reg0
        barrier
        reg1: f32 = 0
        i4: index = lidx0 // 8
        i5: index = i4 * 8
        for r4 < 8 REDUCE
          i6: index = i5 + r4
          v7: f32 = shared0[i6]
          reg1 = reg1 ADD v7
        p0[gidx0 if v5] = reg1
        v8: void = endif(v4)
        v9: void = if(v3)
        i7: index = gidx0 + -6
        i8: index = max(i7, 0)
        i9: index = i8 * 4
        i10: index = i9 + lidx0
        v10: f32 = p11[i10]
        v11: f32 = v10 * 2
        i11: index = i8 & 1
        i12: index = i11 * 4
        i13: index = i12 + lidx0
        v12: f32 = p12[i13]
        v13: f32 = v11 + v12
        p10[i10] = v13
        v14: void = endif(v9)
        "
      `)
  })
})
