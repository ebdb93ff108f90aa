import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, rangeArg, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { expand } from "../src/Expand.ts"
import * as Kernels from "./support/kernels.ts"
import { cpu, expanded, gpu, opted } from "./support/stages.ts"

const { group, local, loop, spread, unroll, upcast } = Opt

/** The memory accesses as text: `LOAD f32x4`. */
const accesses = (kernel: UOp): ReadonlyArray<string> =>
  toposort(kernel).filter((n) => n.op === "LOAD" || n.op === "STORE").map((n) =>
    `${n.op} ${DType.print(n.op === "STORE" ? n.src[1]!.dtype : n.dtype)}`
  ).toSorted()

const times = (count: number, text: string): ReadonlyArray<string> => Array.from({ length: count }, () => text)
const vectors = { lanes: [1, 4], hasGrid: false } as const
const scalars = { lanes: [1], hasGrid: false } as const

describe("Expand", () => {
  const lists: ReadonlyArray<readonly [keyof typeof Kernels, ReadonlyArray<Opt.Opt>]> = [
    ["elementwise", []],
    ["elementwise", [upcast(1, 4)]],
    ["elementwise", [upcast(1, 2)]],
    ["elementwise", [upcast(0, 6), upcast(1, 4)]],
    ["elementwise", [loop(0, 6), upcast(1, 8)]],
    ["elementwise", [spread(1, 4)]],
    ["sums", [unroll(1, 4)]],
    ["sums", [unroll(1, 8)]],
    ["sums", [upcast(0, 3), unroll(1, 4)]],
    ["sums", [unroll(1, 32)]],
    ["twoReductions", [unroll(1, 4), unroll(2, 4), upcast(0, 4)]],
    ["nested", [unroll(2, 4), unroll(1, 2), upcast(0, 2)]],
    ["symbolic", []],
    ["constantReduction", [unroll(1, 3)]],
    ["unevenCopies", [upcast(1, 2), unroll(2, 4)]]
  ]
  for (const [name, opts] of lists) {
    it(`keeps the values of ${name} under ${opts.map(Opt.print).join(", ") || "no opts"}`, () => {
      const make = Kernels[name] as () => UOp
      const kernel = make()
      for (const caps of [cpu, { ...cpu, lanes: [1] as const }]) {
        const result = expanded(kernel, opts, caps)
        assert.deepStrictEqual(Kernels.run(result), Kernels.run(kernel))
        const axes = toposort(result).filter((n) => n.op === "RANGE").map((n) => rangeArg(n).axis)
        assert.notInclude(axes, "UPCAST")
        assert.notInclude(axes, "UNROLL")
      }
    })
  }

  it("loads and stores vectors where the index is a multiple of the lanes", () => {
    const kernel = opted(Kernels.elementwise(), [upcast(1, 4)])
    assert.deepStrictEqual(accesses(expand(kernel, vectors)), ["LOAD f32x4", "LOAD f32x4", "STORE f32x4"])
  })

  it("falls back to single elements where it is not", () => {
    const kernel = opted(Kernels.window(1, 8), [upcast(0, 4)])
    assert.deepStrictEqual(accesses(expand(kernel, vectors)), [...times(4, "LOAD f32"), "STORE f32x4"])
    const aligned = opted(Kernels.window(4, 8), [upcast(0, 4)])
    assert.deepStrictEqual(accesses(expand(aligned, vectors)), ["LOAD f32x4", "STORE f32x4"])
  })

  it("gates each lane of a load whose gate differs between lanes", () => {
    const kernel = Kernels.window(0, 6)
    const result = expand(opted(kernel, [upcast(0, 4)]), vectors)
    assert.deepStrictEqual(accesses(result), [...times(4, "LOAD f32"), "STORE f32x4"])
    assert.deepStrictEqual(Kernels.run(result), Kernels.run(kernel))
    assert.deepStrictEqual([...Kernels.run(result).slice(6)], [0, 0])
  })

  it("loads once what all lanes share", () => {
    const arena = new Arena()
    const i = Expr.range(arena, 8, 0, "GLOBAL")
    const [out, x] = [0, 1].map((slot) => arena.make("PARAM", DType.f32, [Expr.int(arena, 8)], { slot }))
    const store = Expr.store(Expr.element(out!, i), Expr.load(Expr.element(x!, Expr.int(arena, 3))))
    const kernel = arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])])
    assert.deepStrictEqual(accesses(expand(opted(kernel, [upcast(0, 4)]), vectors)), ["LOAD f32", "STORE f32x4"])
  })

  it("makes copies where the renderer has no vectors, or the amount is no lane count", () => {
    const four = opted(Kernels.elementwise(), [upcast(1, 4)])
    assert.deepStrictEqual(accesses(expand(four, scalars)), [...times(8, "LOAD f32"), ...times(4, "STORE f32")])
    const two = opted(Kernels.elementwise(), [upcast(1, 2)])
    assert.deepStrictEqual(accesses(expand(two, vectors)), [...times(4, "LOAD f32"), ...times(2, "STORE f32")])
  })

  it("upcast times unroll: one vector load for each copy of the output", () => {
    const kernel = opted(Kernels.sums(), [upcast(0, 3), unroll(1, 4)])
    assert.deepStrictEqual(accesses(expand(kernel, vectors)), [...times(3, "LOAD f32x4"), ...times(3, "STORE f32")])
  })

  it("accumulates the lanes of a few sums, and scalars where the sums and loads of a large tile would not fit the registers", () => {
    const arena = new Arena()
    const sizes = [32, 16]
    const [tokens, terms] = [Expr.range(arena, sizes[0]!, 0, "GLOBAL"), Expr.range(arena, sizes[1]!, 1, "REDUCE")]
    const [out, x, w] = [32, 512, 16].map((length, slot) =>
      arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })
    )
    const at = Expr.add(Expr.mul(tokens, 16), terms)
    const value = Expr.mul(Expr.load(Expr.element(x!, at)), Expr.load(Expr.element(w!, terms)))
    const store = Expr.store(Expr.element(out!, tokens), Expr.reduce("ADD", value, [terms]))
    const kernel = arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, tokens])])
    const sumsOf = (tile: number, hasGrid: boolean) => {
      const result = expand(opted(kernel, [upcast(0, tile), unroll(1, 4)]), { ...vectors, hasGrid })
      assert.deepStrictEqual(Kernels.run(result), Kernels.run(kernel))
      return new Set(toposort(result).filter((n) => n.op === "REDUCE").map((n) => DType.print(n.dtype)))
    }
    assert.deepStrictEqual(sumsOf(16, true), new Set(["f32x4"]))
    assert.deepStrictEqual(sumsOf(32, true), new Set(["f32"]))
    assert.deepStrictEqual(sumsOf(32, false), new Set(["f32x4"]))
  })

  it("takes lanes along one loop at a time: along the reduction inside, along the outputs outside", () => {
    const arena = new Arena()
    const [i, k] = [Expr.range(arena, 4, 0, "GLOBAL"), Expr.range(arena, 4, 1, "REDUCE")]
    const [out, x] = [4, 16].map((length, slot) => arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot }))
    const sum = Expr.reduce("ADD", Expr.load(Expr.element(x!, Expr.add(Expr.mul(i, 4), k))), [k])
    const store = Expr.store(Expr.element(out!, i), sum)
    const kernel = arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])])
    const result = expand(opted(kernel, [upcast(0, 4), unroll(1, 4)]), vectors)
    assert.deepStrictEqual(accesses(result), [...times(4, "LOAD f32x4"), "STORE f32x4"])
    assert.deepStrictEqual(Kernels.run(result), Kernels.run(kernel))
  })

  it("computes results that are far apart in the lanes of a vector, and stores each, on a CPU", () => {
    const arena = new Arena()
    const [i, k] = [Expr.range(arena, 8, 0, "GLOBAL"), Expr.range(arena, 4, 1, "REDUCE")]
    const [out, x] = [8, 32].map((length, slot) => arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot }))
    const sum = Expr.reduce("ADD", Expr.load(Expr.element(x!, Expr.add(Expr.mul(i, 4), k))), [k])
    const kernel = arena.make("SINK", DType.none, [
      arena.make("END", DType.none, [Expr.store(Expr.element(out!, i), Expr.mul(sum, 2)), i])
    ])
    const products = (hasGrid: boolean): ReadonlyArray<string> => {
      const result = expand(opted(kernel, [unroll(1, 4), spread(0, 4)]), { ...vectors, hasGrid })
      assert.deepStrictEqual(accesses(result), [...times(4, "LOAD f32x4"), ...times(4, "STORE f32")])
      assert.deepStrictEqual(Kernels.run(result), Kernels.run(kernel))
      return toposort(result).filter((n) => n.op === "MUL" && DType.isFloat(n.dtype)).map((n) => DType.print(n.dtype))
    }
    assert.deepStrictEqual(products(false), ["f32x4"])
    assert.deepStrictEqual(products(true), times(4, "f32"))
  })

  it("computes neighbours that are read in one vector where no loop makes the store contiguous, on a CPU", () => {
    const arena = new Arena()
    const [row, token] = [Expr.range(arena, 4, 0, "GLOBAL"), Expr.range(arena, 16, 1, "GLOBAL")]
    const [out, w, x] = [128, 4, 16].map((length, slot) =>
      arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })
    )
    const value = Expr.mul(Expr.load(Expr.element(w!, row)), Expr.load(Expr.element(x!, token)))
    const at = Expr.add(Expr.mul(token, 8), Expr.mul(row, 2))
    const kernel = arena.make("SINK", DType.none, [
      arena.make("END", DType.none, [Expr.store(Expr.element(out!, at), value), row, token])
    ])
    // the loop over vectors of tokens stands in front of the one over a vector's
    const result = expand(opted(kernel, [upcast(1, 4), upcast(1, 4), upcast(0, 2)]), vectors)
    const all = [...times(2, "LOAD f32"), ...times(4, "LOAD f32x4"), ...times(32, "STORE f32")]
    assert.deepStrictEqual(accesses(result), all)
    assert.deepStrictEqual(Kernels.run(result), Kernels.run(kernel))
  })

  /** `out[i] = sum over k of w[k] x[4 k + i]`: weights are neighbours along k, activations along i. */
  const product = (): UOp => {
    const arena = new Arena()
    const [i, k] = [Expr.range(arena, 4, 0, "GLOBAL"), Expr.range(arena, 8, 1, "REDUCE")]
    const [out, w, x] = [4, 8, 32].map((length, slot) =>
      arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })
    )
    const term = Expr.mul(Expr.load(Expr.element(w!, k)), Expr.load(Expr.element(x!, Expr.add(Expr.mul(k, 4), i))))
    const store = Expr.store(Expr.element(out!, i), Expr.reduce("ADD", term, [k]))
    return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])])
  }

  it("keeps lanes along the outputs where loads are contiguous there, and reads the other operand once for all copies", () => {
    const result = expand(opted(product(), [upcast(0, 4), unroll(1, 4)]), gpu)
    assert.deepStrictEqual(accesses(result).toSorted(), [...times(5, "LOAD f32x4"), "STORE f32x4"])
    assert.deepStrictEqual(Kernels.run(result), Kernels.run(product()))
    // a CPU loads one value into all lanes
    const loads = accesses(expand(opted(product(), [upcast(0, 4), unroll(1, 4)]), { ...gpu, hasGrid: false }))
    assert.deepStrictEqual(loads.toSorted(), [...times(4, "LOAD f32"), ...times(4, "LOAD f32x4"), "STORE f32x4"])
  })

  it("leaves threads and loops alone, and turns groups into GROUP_REDUCE", () => {
    const result = expand(opted(Kernels.sums(), [unroll(1, 4), group(1, 4), local(0, 2)]), gpu)
    const axes = toposort(result).filter((n) => n.op === "RANGE").map((n) => rangeArg(n).axis)
    assert.deepStrictEqual(axes.toSorted(), ["GLOBAL", "GROUP", "LOCAL", "REDUCE"])
    const [grouped] = toposort(result).filter((n) => n.op === "GROUP_REDUCE")
    assert.deepStrictEqual(grouped!.arg, { op: "ADD", threads: 4 })
  })
})
