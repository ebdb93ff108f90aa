import { assert, describe, expect, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import * as Kernels from "./support/kernels.ts"
import { listing } from "./support/listing.ts"
import { cpu, gpu, linear } from "./support/stages.ts"

const { group, local, loop, unroll, upcast } = Opt
const kernels = {
  elementwise: Kernels.elementwise,
  sums: Kernels.sums,
  twoReductions: Kernels.twoReductions,
  nested: Kernels.nested,
  twoLengths: Kernels.twoLengths,
  waitingSums: Kernels.waitingSums,
  symbolic: Kernels.symbolic,
  constantReduction: Kernels.constantReduction,
  unevenCopies: Kernels.unevenCopies
}

const text = (kernel: UOp, opts: ReadonlyArray<Opt.Opt>, caps = gpu): string =>
  `\n${listing(linear(kernel, opts, caps)).join("\n")}\n`

describe("Linearize", () => {
  const lists: ReadonlyArray<readonly [keyof typeof kernels, ReadonlyArray<Opt.Opt>]> = [
    ["elementwise", [local(1, 8), upcast(0, 3)]],
    ["elementwise", [loop(0, 6), upcast(1, 4)]],
    ["sums", [unroll(1, 4), group(1, 8)]],
    ["sums", [group(1, 32), local(0, 3)]],
    ["sums", [upcast(0, 2), group(1, 2), local(0, 3)]],
    ["sums", [upcast(0, 2), group(1, 16)]],
    ["sums", [loop(0, 6), group(1, 8)]],
    ["twoReductions", [group(1, 16), group(2, 16)]],
    ["twoReductions", [group(1, 4), unroll(2, 4), local(0, 2)]],
    ["nested", [group(1, 8), unroll(2, 4)]],
    ["twoReductions", [group(1, 4), group(2, 16)]],
    ["twoReductions", [group(1, 4), group(1, 2), group(2, 2), local(0, 2)]],
    ["twoLengths", [group(1, 3), local(0, 2), upcast(0, 2)]],
    ["twoLengths", [group(2, 2), group(1, 2), group(1, 3)]],
    ["waitingSums", [group(1, 4), group(2, 4), group(3, 4)]],
    ["waitingSums", [group(1, 2), group(2, 8), group(3, 2)]],
    ["symbolic", []],
    ["symbolic", [group(1, 8)]],
    ["symbolic", [loop(0, 8), group(1, 4)]],
    ["constantReduction", [group(1, 3)]],
    ["constantReduction", [group(1, 3), local(0, 2)]],
    ["unevenCopies", [upcast(1, 2)]],
    ["unevenCopies", [upcast(1, 2), unroll(2, 2)]],
    ["unevenCopies", [upcast(1, 2), group(2, 4)]]
  ]
  for (const [name, opts] of lists) {
    it(`keeps the values of ${name} under ${opts.map(Opt.print).join(", ") || "no opts"}`, () => {
      const kernel = kernels[name]()
      const want = Kernels.run(kernel)
      for (const subgroupSize of [undefined, 4, 8, 32]) {
        const result = linear(kernel, opts, { ...gpu, subgroupSize })
        assert.deepStrictEqual(Kernels.runLinear(result, kernel), want)
      }
      const serial = opts.filter((o) => o.kind !== "LOCAL" && o.kind !== "GROUP")
      assert.deepStrictEqual(Kernels.runLinear(linear(kernel, serial, cpu), kernel), want)
    })
  }

  it("is deterministic", () => {
    const opts = [unroll(1, 4), group(1, 8)]
    assert.strictEqual(text(Kernels.sums(), opts), text(Kernels.sums(), opts))
  })

  it("computes outside of a loop what does not depend on it", () => {
    expect(text(Kernels.elementwise(), [upcast(1, 4)], cpu)).toMatchInlineSnapshot(`
      "
      v0: f32x4 = stack(2, 2, 2, 2)
      for r0 < 6 GLOBAL
        i0: index = r0 * 8
        for r1 < 2 GLOBAL
          i1: index = r1 * 4
          i2: index = i0 + i1
          v1: f32x4 = p1[i2]
          v2: f32x4 = v1 * v0
          v3: f32x4 = p2[i1]
          v4: f32x4 = v2 + v3
          p0[i2] = v4
      "
    `)
  })

  it("nests reductions, each register initialised where its loop starts", () => {
    expect(text(Kernels.nested(), [])).toMatchInlineSnapshot(`
      "
      gidx0 < 4
      reg0: f32 = 0
      i0: index = gidx0 * 64
      for r1 < 8 REDUCE
        reg1: f32 = -Infinity
        i1: index = r1 * 8
        i2: index = i0 + i1
        for r2 < 8 REDUCE
          i3: index = i2 + r2
          v0: f32 = p1[i3]
          reg1 = reg1 MAX v0
        reg0 = reg0 ADD reg1
      p0[gidx0] = reg0
      "
    `)
  })

  it("combines threads through workgroup memory between barriers", () => {
    expect(text(Kernels.sums(), [unroll(1, 4), group(1, 8)])).toMatchInlineSnapshot(`
      "
      gidx0 < 6
      lidx0 < 8
      v0: bool = lidx0 < 1
      i0: index = gidx0 * 32
      i1: index = lidx0 * 4
      i2: index = i0 + i1
      v1: f32x4 = p1[i2]
      v2: f32 = v1.x + v1.y
      v3: f32 = v1.z + v1.w
      v4: f32 = v2 + v3
      shared0: f32 = 8 elements
      shared0[lidx0] = v4
      barrier
      reg0: f32 = 0
      i3: index = lidx0 // 8
      i4: index = i3 * 8
      for r_threads < 8 REDUCE
        i5: index = i4 + r_threads
        v5: f32 = shared0[i5]
        reg0 = reg0 ADD v5
      p0[gidx0 if v0] = reg0
      "
    `)
  })

  it("combines threads of one subgroup without memory", () => {
    expect(text(Kernels.sums(), [unroll(1, 4), group(1, 8)], { ...gpu, subgroupSize: 32 })).toMatchInlineSnapshot(`
      "
      gidx0 < 6
      lidx0 < 8
      v0: bool = lidx0 < 1
      i0: index = gidx0 * 32
      i1: index = lidx0 * 4
      i2: index = i0 + i1
      v1: f32x4 = p1[i2]
      v2: f32 = v1.x + v1.y
      v3: f32 = v1.z + v1.w
      v4: f32 = v2 + v3
      v5: f32 = subgroup ADD of 8 threads: v4
      p0[gidx0 if v0] = v5
      "
    `)
  })

  it("combines subgroups first, then their results through memory", () => {
    expect(text(Kernels.sums(), [group(1, 32)], { ...gpu, subgroupSize: 4 })).toMatchInlineSnapshot(`
      "
      gidx0 < 6
      lidx0 < 32
      v0: bool = lidx0 < 1
      i0: index = gidx0 * 32
      i1: index = i0 + lidx0
      v1: f32 = p1[i1]
      v2: f32 = subgroup ADD of 4 threads: v1
      shared0: f32 = 8 elements
      i2: index = lidx0 // 4
      i3: index = lidx0 % 4
      v3: bool = i3 < 1
      shared0[i2 if v3] = v2
      barrier
      reg0: f32 = 0
      i4: index = lidx0 // 32
      i5: index = i4 * 8
      for r_threads < 8 REDUCE
        i6: index = i5 + r_threads
        v4: f32 = shared0[i6]
        reg0 = reg0 ADD v4
      p0[gidx0 if v0] = reg0
      "
    `)
  })

  it("waits again before an enclosing loop overwrites workgroup memory", () => {
    const lines = listing(linear(Kernels.sums(), [loop(0, 6), group(1, 32)], gpu)).map((l) => l.trim())
    assert.deepStrictEqual(lines.filter((l) => l.startsWith("for") || l === "barrier"), [
      "for r0 < 6 LOOP",
      "barrier",
      "for r_threads < 32 REDUCE",
      "barrier"
    ])
  })

  it("shares one loop, and one pair of barriers, between the copies of a reduction", () => {
    const upcasted = listing(linear(Kernels.sums(), [upcast(0, 3)], gpu))
    assert.deepStrictEqual(upcasted.filter((l) => l.startsWith("for")), ["for r1 < 32 REDUCE"])
    assert.strictEqual(upcasted.filter((l) => l.trim().startsWith("reg")).length, 6)
    const grouped = listing(linear(Kernels.sums(), [upcast(0, 3), group(1, 16)], gpu))
    assert.strictEqual(grouped.filter((l) => l === "barrier").length, 1)
    assert.strictEqual(grouped.filter((l) => l.startsWith("shared") && l.endsWith("elements")).length, 3)
  })

  it("gives reductions over one loop variable at different places loops of their own", () => {
    const result = linear(Kernels.unevenCopies(), [upcast(1, 2)], cpu)
    const loops = result.src.filter((n) => n.op === "RANGE")
    assert.strictEqual(loops.length, 3)
    assert.strictEqual(new Set(loops).size, 3)
  })

  it("keeps loads under their gates", () => {
    const kernel = Kernels.window(2, 3)
    assert.deepStrictEqual(Kernels.runLinear(linear(kernel, [], gpu), kernel), Kernels.run(kernel))
    expect(text(kernel, [])).toMatchInlineSnapshot(`
      "
      gidx0 < 8
      i0: index = gidx0 + 2
      v0: bool = gidx0 < 3
      v1: f32 = p1[i0 if v0]
      p0[gidx0] = v1
      "
    `)
  })

  it("stores in the order of the kernel's roots", () => {
    const arena = new Arena()
    const [a, b] = [0, 1].map((slot) => arena.make("PARAM", DType.f32, [Expr.int(arena, 4)], { slot }))
    const end = (buffer: UOp, id: number, value: number): UOp => {
      const i = Expr.range(arena, 4, id, "GLOBAL")
      const store = Expr.store(Expr.element(buffer, i), Expr.constant(arena, DType.f32, value))
      return arena.make("END", DType.none, [store, i])
    }
    const kernel = arena.make("SINK", DType.none, [end(b!, 0, 1), end(a!, 1, 2)])
    assert.deepStrictEqual(listing(linear(kernel, [], cpu)), [
      "for r0 < 4 GLOBAL",
      "  p1[r0] = 1",
      "for r1 < 4 GLOBAL",
      "  p0[r1] = 2"
    ])
    assert.strictEqual(toposort(kernel).filter((n) => n.op === "STORE").length, 2)
  })
})
