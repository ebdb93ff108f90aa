import * as DType from "@tg/core-uop/DType"
import { scalar } from "@tg/core-uop/EvaluateOps"
import * as Expr from "@tg/core-uop/Expr"
import { elementwise, type Op } from "@tg/core-uop/Op"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import { assert, describe, it } from "@effect/vitest"
import { execute } from "../../codegen-wasm/test/support/execute.ts"
import { kernel } from "../../codegen-wasm/test/support/linear.ts"
import { decompose, decompositions, rewrite, strength } from "../src/Decompose.ts"

/** Everything that has no decomposition: the least a renderer may have. */
const least: ReadonlySet<Op> = new Set([...elementwise].filter((op) => !(op in decompositions)))
const leaf = (arena: Arena, dtype: DType.DType, slot = 0): UOp =>
  Expr.load(
    Expr.element(arena.make("PARAM", DType.scalarOf(dtype), [Expr.int(arena, 4)], { slot }), Expr.int(arena, 0)),
    dtype.lanes
  )

/** A scalar expression as a JavaScript function of its loads, by slot. */
const compile = (root: UOp): (...x: ReadonlyArray<number>) => number => {
  const order = toposort(root).filter((n) => n.op === "CONST" || n.op === "LOAD" || elementwise.has(n.op))
  const at = new Map(order.map((n, i) => [n, i]))
  const values = new Float64Array(order.length)
  const round = (n: UOp, x: number): number =>
    n.dtype.scalar === "f32"
      ? Math.fround(x)
      : n.dtype.scalar === "i32"
      ? x | 0
      : n.dtype.scalar === "u32"
      ? x >>> 0
      : x
  return (...inputs) => {
    for (const [i, n] of order.entries()) {
      if (n.op === "CONST") values[i] = round(n, Number(n.arg))
      else if (n.op === "LOAD") values[i] = inputs[(n.src[0]!.src[0]!.arg as { slot: number }).slot]!
      else {
        const [a, b, c] = n.src.map((s) => values[at.get(s)!]!)
        values[i] = round(n, scalar(n.op, n.src[n.op === "WHERE" ? 1 : 0]!.dtype, n.dtype)(a!, b!, c!))
      }
    }
    return values[order.length - 1]!
  }
}

const decomposed = (op: Op, ...dtypes: ReadonlyArray<DType.DType>): UOp => {
  const arena = new Arena()
  const node = Expr.alu(op, ...dtypes.map((d, i) => leaf(arena, d, i)))
  const root = decompose(node, least)
  assert.isFalse(toposort(root).some((n) => n.op === op))
  const sink = Spec.check("expanded", root).filter((v) => v.node !== "SINK" && v.reason !== "the root is not SINK")
  assert.deepStrictEqual(sink, [])
  return root
}

const ulp = (x: number): number => 2 ** (Math.max(-126, Math.floor(Math.log2(Math.abs(x)))) - 23)
/** The largest error in units of the last place of the exact result. */
const worst = (f: (x: number) => number, exact: (x: number) => number, inputs: Iterable<number>): number => {
  let error = 0
  for (const input of inputs) {
    const x = Math.fround(input)
    error = Math.max(error, Math.abs(f(x) - exact(x)) / ulp(exact(x)))
  }
  return error
}
const span = function*(from: number, to: number, count: number): Generator<number> {
  for (let i = 0; i <= count; i++) yield from + (to - from) * i / count
}
/** Every positive float, by steps of its bits. */
const floats = function*(step: number): Generator<number> {
  const view = new DataView(new ArrayBuffer(4))
  for (let bits = 1; bits < 0x7f800000; bits += step) {
    view.setUint32(0, bits)
    yield view.getFloat32(0)
  }
}

const halfValue = (h: number): number => scalar("HALF_TO_FLOAT", DType.u32, DType.f32)(h, 0, 0)
const nearestHalf = (x: number): number => scalar("FLOAT_TO_HALF", DType.f32, DType.u32)(x, 0, 0)

describe("decompose", () => {
  it("EXP2 within 2 ulp, subnormal results included", () => {
    const f = compile(decomposed("EXP2", DType.f32))
    assert.isBelow(worst(f, (x) => 2 ** x, span(-126, 127.9, 100_000)), 2)
    assert.isBelow(worst(f, (x) => 2 ** x, span(-1e-3, 1e-3, 10_000)), 2)
    assert.isBelow(worst(f, (x) => 2 ** x, span(-149, -126, 20_000)), 2)
    for (let n = -149; n < 128; n++) assert.strictEqual(f(n), 2 ** n)
    assert.deepStrictEqual([128, 1e30, Infinity, -151, -1e30, -Infinity, NaN].map((x) => f(Math.fround(x))), [
      Infinity,
      Infinity,
      Infinity,
      0,
      0,
      0,
      NaN
    ])
  })

  it("LOG2 within 2 ulp, subnormals included", () => {
    const f = compile(decomposed("LOG2", DType.f32))
    assert.isBelow(worst(f, Math.log2, floats(60_013)), 2)
    assert.isBelow(worst((x) => x === 1 ? 1 : f(x), (x) => x === 1 ? 1 : Math.log2(x), span(0.5, 2, 200_001)), 2)
    for (let n = -149; n < 128; n++) assert.strictEqual(f(2 ** n), n)
    assert.deepStrictEqual([0, -0, -1, -1e-40, -Infinity, Infinity, NaN].map((x) => f(x)), [
      -Infinity,
      -Infinity,
      NaN,
      NaN,
      NaN,
      Infinity,
      NaN
    ])
  })

  it("SIN within 1e-6 for |x| up to 10^5", () => {
    const f = compile(decomposed("SIN", DType.f32))
    const error = (xs: Iterable<number>): number => {
      let e = 0
      for (const x of xs) e = Math.max(e, Math.abs(f(Math.fround(x)) - Math.sin(Math.fround(x))))
      return e
    }
    // measured 1.7e-7; the bound is what the rule promises
    assert.isBelow(error(span(-10, 10, 50_000)), 1e-6)
    assert.isBelow(error(span(-1e5, 1e5, 100_000)), 1e-6)
    assert.isBelow(error([...Array(31830).keys()].map((n) => n * Math.PI)), 1e-6)
    assert.isTrue(Object.is(f(-0), -0))
    assert.isNaN(f(NaN))
    assert.isNaN(f(Infinity))
  })

  it("HALF_TO_FLOAT is exact for every half", () => {
    const f = compile(decomposed("HALF_TO_FLOAT", DType.u32))
    for (let h = 0; h < 65536; h++) {
      if (!Object.is(f(h + 0xabcd0000), halfValue(h))) assert.fail(`${h}: ${f(h)}, not ${halfValue(h)}`)
    }
  })

  it("FLOAT_TO_HALF is exact for every half, the midpoints between them, and their neighbours", () => {
    const f = compile(decomposed("FLOAT_TO_HALF", DType.f32))
    const check = (x: number): void => {
      if (f(x) !== nearestHalf(x)) assert.fail(`${x}: ${f(x)}, not ${nearestHalf(x)}`)
    }
    const next = (x: number, by: number): number => {
      const view = new DataView(new ArrayBuffer(4))
      view.setFloat32(0, x)
      view.setUint32(0, view.getUint32(0) + by)
      return view.getFloat32(0)
    }
    for (let h = 0; h <= 0x7c00; h++) {
      const x = halfValue(h)
      const middle = h === 0x7bff ? 65520 : (x + halfValue(h + 1)) / 2
      for (const y of [x, middle, next(middle, 1), ...middle > 0 ? [next(middle, -1)] : []]) {
        check(y)
        check(-y)
      }
    }
    for (const x of [NaN, Infinity, -Infinity, 1e-45, 1e38, 65519.996, 65536, 0, -0]) check(Math.fround(x))
    for (const x of floats(150_001)) check(x)
  })

  it("MAX, MIN, NEG and MULACC", () => {
    const max = compile(decomposed("MAX", DType.f32, DType.f32))
    const min = compile(decomposed("MIN", DType.i32, DType.i32))
    assert.deepStrictEqual([max(1, 2), max(2, 1), max(NaN, 1), min(3, -4), min(-4, 3)], [2, 2, NaN, -4, -4])
    const neg = compile(decomposed("NEG", DType.f32))
    assert.deepStrictEqual([neg(0), neg(-0), neg(1.5), neg(-Infinity)], [-0, 0, -1.5, Infinity])
    assert.strictEqual(compile(decomposed("NEG", DType.i32))(-(2 ** 31)), -(2 ** 31))
    assert.strictEqual(compile(decomposed("MULACC", DType.f32, DType.f32, DType.f32))(2, 3, 4), 10)
  })

  it("DOT4I8", () => {
    const dot = compile(decomposed("DOT4I8", DType.u32, DType.u32))
    const words = [0, 1, 0xffffffff, 0x80808080, 0x7f7f7f7f, 0x01020304, 0xfe81007f, 0x12345678, 0x80000000]
    const exact = scalar("DOT4I8", DType.u32, DType.i32)
    for (const x of words) for (const y of words) assert.strictEqual(dot(x, y), exact(x, y, 0), `${x} ${y}`)
  })

  it("keeps what the renderer has", () => {
    const arena = new Arena()
    const node = Expr.alu("EXP2", Expr.alu("LOG2", leaf(arena, DType.f32)))
    assert.strictEqual(decompose(node, elementwise), node)
    const half = decompose(node, new Set<Op>(["EXP2"]))
    assert.strictEqual(half.op, "EXP2")
    assert.isFalse(toposort(half).some((n) => n.op === "LOG2"))
  })

  it("keeps labels, and shares what is shared", () => {
    const arena = new Arena()
    const e = arena.label(Expr.alu("EXP2", leaf(arena, DType.f32)), "softmax")
    const root = decompose(Expr.add(e, e), least)
    assert.strictEqual(root.src[0], root.src[1])
    assert.strictEqual(arena.labelOf(root.src[0]!), "softmax")
  })

  it("is linear in the size of the graph", () => {
    const arena = new Arena()
    let x = leaf(arena, DType.f32)
    for (let i = 0; i < 20_000; i++) x = Expr.neg(Expr.add(x, i % 5))
    assert.strictEqual(toposort(decompose(x, least)).filter((n) => n.op === "SUB").length, 20_000)
  })
})

describe("through WebAssembly, four lanes", () => {
  const run = (
    op: Op,
    out: Float32Array | Uint32Array,
    input: Float32Array | Uint32Array
  ): Float32Array | Uint32Array => {
    const dtypes = [out, input].map((d) => d instanceof Float32Array ? DType.f32 : DType.u32)
    const linear = kernel((b) => {
      const target = b.param(0, dtypes[0])
      const source = b.param(1, dtypes[1])
      b.loop(input.length / 4, "GLOBAL", (r) => {
        const at = Expr.mul(r, 4)
        b.store(target, at, decompose(Expr.alu(op, b.load(source, at, { lanes: 4 })), least))
      })
    })
    return execute(linear, [out, input])[0]
  }
  it("every half", () => {
    const halves = Uint32Array.from({ length: 65536 }, (_, i) => i)
    assert.deepStrictEqual(run("HALF_TO_FLOAT", new Float32Array(65536), halves), Float32Array.from(halves, halfValue))
    const values = Float32Array.from(halves, halfValue)
    assert.deepStrictEqual(run("FLOAT_TO_HALF", new Uint32Array(65536), values), Uint32Array.from(values, nearestHalf))
  })
  it.each(["EXP2", "LOG2", "SIN"] as const)("%s agrees with the scalar form bit by bit", (op) => {
    const f = compile(decomposed(op, DType.f32))
    const inputs = Float32Array.from({ length: 4096 }, (_, i) => i < 4 ? [0, -0, Infinity, NaN][i]! : (i - 2048) / 13)
    assert.deepStrictEqual(run(op, new Float32Array(4096), inputs), inputs.map((x) => f(x)))
  })
})

describe("strength", () => {
  it.each([DType.i32, DType.index, DType.u32])("division by powers of two is shifts, %o", (dtype) => {
    for (const exponent of [0, 1, 5, 30]) {
      const arena = new Arena()
      const x = leaf(arena, dtype)
      const divide = rewrite(Expr.floordiv(x, 2 ** exponent), strength)
      const remainder = rewrite(Expr.floormod(x, 2 ** exponent), strength)
      assert.isFalse(toposort(divide, remainder).some((n) => n.op === "FLOORDIV" || n.op === "FLOORMOD"))
      const values = dtype === DType.u32 ? [0, 1, 31, 2 ** 32 - 1] : [0, 1, -1, 31, -32, -33, 2 ** 31 - 1, -(2 ** 31)]
      for (const v of values) {
        const quotient = Math.floor(v / 2 ** exponent)
        if (exponent > 0) assert.strictEqual(compile(divide)(v), quotient)
        assert.strictEqual(compile(remainder)(v), v - quotient * 2 ** exponent)
      }
    }
  })

  it("works on vectors and leaves other divisors", () => {
    const arena = new Arena()
    const v = leaf(arena, DType.make("i32", 4))
    assert.strictEqual(rewrite(Expr.floordiv(v, 8), strength), Expr.shr(v, 3))
    for (const divisor of [7, -8, 0]) {
      const node = Expr.floormod(v, divisor)
      assert.strictEqual(rewrite(node, strength), node)
    }
  })
})

describe("fields", () => {
  const moved = (down: number, mask: number, up: number): { readonly root: UOp; readonly same: UOp } => {
    const arena = new Arena()
    const root = Expr.shl(Expr.and(Expr.shr(leaf(arena, DType.u32), down), mask), up)
    return { root, same: rewrite(root, strength) }
  }
  const words = [0, 1, 0xffffffff, 0x12345678, 0x9abcdef0, 0x80000000]
  const shifts = (root: UOp): number => toposort(root).filter((n) => n.op === "SHL" || n.op === "SHR").length

  it.each([[4, 3, 4], [6, 3, 4], [2, 3, 4], [8, 255, 24], [30, 3, 1]])(
    "the field x >> %i & %i moves up %i with one shift",
    (down, mask, up) => {
      const { root, same } = moved(down, mask, up)
      assert.strictEqual(shifts(same), down === up ? 0 : 1)
      for (const word of words) assert.strictEqual(compile(same)(word), compile(root)(word))
    }
  )

  it("what the shifts cut off is not masked as well", () => {
    const arena = new Arena()
    const x = leaf(arena, DType.u32)
    const [masked, shifted] = [Expr.shl(Expr.and(x, 0xffff), 16), Expr.shl(Expr.shr(x, 16), 16)]
    assert.strictEqual(rewrite(masked, strength), Expr.shl(x, 16))
    assert.strictEqual(rewrite(shifted, strength), Expr.and(x, 0xffff0000))
    for (const root of [masked, shifted, Expr.shl(Expr.and(Expr.shr(x, 8), 255), 25)]) {
      for (const word of words) assert.strictEqual(compile(rewrite(root, strength))(word), compile(root)(word))
    }
  })

  it.each([[0xffff0000, 3, 0x8fffe000, 1], [0x7fff0000, 3, 0x8fffe000, 2], [0xffff0000, 3, 0x8ffff000, 2]])(
    "the mask %i in front of an arithmetic shift by %i goes if the mask %i behind it keeps no more",
    (first, down, second, left) => {
      const arena = new Arena()
      const x = Expr.bitcast(Expr.and(leaf(arena, DType.u32), first), DType.i32)
      const root = Expr.and(Expr.shr(x, down), second | 0)
      const same = rewrite(root, strength)
      assert.strictEqual(toposort(same).filter((n) => n.op === "AND").length, left)
      for (const word of words) assert.strictEqual(compile(same)(word), compile(root)(word))
    }
  )

  it("a half at either end of a word becomes a float with one mask for its place", () => {
    const arena = new Arena()
    const word = leaf(arena, DType.u32)
    for (const [half, count] of [[Expr.and(word, 0xffff), 2], [Expr.shr(word, 16), 1]] as const) {
      const root = rewrite(decompose(Expr.alu("HALF_TO_FLOAT", half), least), strength)
      assert.strictEqual(shifts(root), count)
      assert.strictEqual(toposort(root).filter((n) => n.op === "AND").length, 2)
      for (const x of words) assert.deepStrictEqual(compile(root)(x), halfValue(count === 2 ? x & 0xffff : x >>> 16))
    }
  })

  it("one that loses some bits at the top is left alone", () => {
    const { root, same } = moved(8, 0xf0f, 24)
    assert.strictEqual(same, root)
  })
})
