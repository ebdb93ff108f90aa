import { assert, describe, layer } from "@effect/vitest"
import { DType, Expr } from "@tg/core-uop"
import { scalar } from "@tg/core-uop/EvaluateOps"
import type { Op } from "@tg/core-uop/Op"
import type { UOp } from "@tg/core-uop/UOp"
import { Device } from "@tg/runtime/Device"
import { Effect } from "effect"
import { WebGpuInfo } from "../src/WebGpuInfo.ts"
import * as Testing from "../src/Testing.ts"
import { Kernel, launch, render, type Words, wordsOf } from "./support.ts"

const noGpu = (await Testing.availableAdapter()) === undefined

const floats = (n: number): Float32Array => Float32Array.from({ length: n }, (_, i) => ((i * 37) % 101) - 50)

/** Runs a kernel whose last binding is its output of `length` words. */
const output = (
  kernel: Kernel,
  inputs: ReadonlyArray<Words>,
  [dtype, length]: readonly [DType.DType, number],
  vars: Readonly<Record<string, number>> = {}
) =>
  Effect.gen(function*() {
    const all = yield* launch(
      yield* render("test", kernel),
      [...inputs, wordsOf(new Uint8Array(4 * length), dtype)],
      vars
    )
    return Array.from(wordsOf(all[all.length - 1]!, dtype))
  })

describe.skipIf(noGpu)("rendered kernels", () => {
  layer(Testing.layer)((it) => {
    it.effect("double vectors of four", () =>
      Effect.gen(function*() {
        const k = new Kernel()
        const at = Expr.add(Expr.mul(k.special("gidx0", 4), 64), Expr.mul(k.special("lidx0", 16), 4))
        k.store(k.param(1, DType.f32, 256), at, Expr.mul(k.load(k.param(0, DType.f32, 256), at, 4), 2))
        const x = floats(256)
        assert.deepStrictEqual(yield* output(k, [x], [DType.f32, 256]), Array.from(x, (v) => 2 * v))
      }))

    it.effect("sum in a loop bounded by a variable", () =>
      Effect.gen(function*() {
        const k = new Kernel()
        const n = Expr.variable(k.arena, "n", 0, 100)
        const row = k.add(k.special("gidx0", Expr.variable(k.arena, "rows", 1, 8)))
        const register = k.register(0, k.f32(0))
        const i = k.range(0, n)
        k.accumulate("ADD", register, k.load(k.param(0, DType.f32, 800), Expr.add(Expr.mul(row, 100), i)))
        k.end(i)
        k.store(k.param(1, DType.f32, 8), row, register)
        const x = floats(800)
        const expected = (count: number, rows: number) =>
          Array.from({ length: 8 }, (_, r) =>
            r < rows ? x.subarray(100 * r, 100 * r + count).reduce((a, b) => a + b, 0) : 0)
        for (const [count, rows] of [[100, 8], [33, 5], [0, 1]] as const) {
          const found = yield* output(k, [x], [DType.f32, 8], { n: count, rows })
          assert.deepStrictEqual(found, expected(count, rows)) // sums of small integers are exact
        }
      }))

    it.effect("reduce through workgroup memory in a tree", () =>
      Effect.gen(function*() {
        const k = new Kernel()
        const thread = k.special("lidx0", 64)
        const shared = k.local(0, DType.f32, 64)
        k.store(shared, thread, k.load(k.param(0, DType.f32, 64), thread))
        k.barrier()
        const second = k.arena.make("BARRIER", DType.none, [k.int(1)])
        const half = Expr.add(k.load(shared, Expr.min(thread, 31)), k.load(shared, Expr.add(Expr.min(thread, 31), 32)))
        k.add(half)
        k.add(second)
        k.store(shared, thread, half)
        k.add(k.arena.make("BARRIER", DType.none, [k.int(2)]))
        const register = k.register(0, k.f32(0))
        const i = k.range(0, 32)
        k.accumulate("ADD", register, k.load(shared, i))
        k.end(i)
        k.store(k.param(1, DType.f32), k.int(0), register, Expr.eq(thread, 0))
        const x = floats(64)
        assert.deepStrictEqual(yield* output(k, [x], [DType.f32, 1]), [x.reduce((a, b) => a + b)])
      }))

    it.effect("reduce over whole subgroups and parts of them", (context) =>
      Effect.gen(function*() {
        const { subgroupSize } = (yield* Device).profile
        if (subgroupSize === undefined) return context.skip("the device has no subgroups of one size")
        const x = floats(64)
        for (const threads of [subgroupSize, subgroupSize / 2, 2]) {
          for (
            const [op, combine] of [
              ["ADD", (a: number, b: number) => a + b],
              ["MAX", (a: number, b: number) => Math.max(a, b)],
              ["MIN", (a: number, b: number) => Math.min(a, b)],
              ["MUL", (a: number, b: number) => Math.fround(a * b)]
            ] as const
          ) {
            const k = new Kernel()
            const thread = Expr.add(k.special("lidx0", 16), Expr.mul(k.special("lidx1", 4), 16))
            const value = k.load(k.param(0, DType.f32, 64), thread)
            k.store(
              k.param(1, DType.f32, 64),
              thread,
              k.subgroup(op, op === "MUL" ? Expr.max(Expr.min(value, 2), 1) : value, threads)
            )
            const lanes = op === "MUL" ? x.map((v) => Math.max(1, Math.min(2, v))) : x // powers of two multiply exactly
            const group = (i: number) => lanes.subarray(i - (i % threads), i - (i % threads) + threads)
            const found = yield* output(k, [x], [DType.f32, 64])
            assert.deepStrictEqual(found, Array.from(x, (_, i) => group(i).reduce(combine)), `${op} over ${threads}`)
          }
        }
      }))

    it.effect("add up several sums over the same threads", (context) =>
      Effect.gen(function*() {
        const { subgroupSize } = (yield* Device).profile
        if (subgroupSize === undefined) return context.skip("the device has no subgroups of one size")
        for (const dtype of [DType.f32, DType.i32]) {
          for (const threads of [subgroupSize, subgroupSize / 2, 2]) {
            for (const sums of [2, 3, subgroupSize, 3 * subgroupSize - 1]) {
              const k = new Kernel()
              const thread = Expr.add(k.special("lidx0", 16), Expr.mul(k.special("lidx1", 4), 16))
              const values = Array.from(
                { length: sums },
                (_, s) => k.load(k.param(0, dtype, 64 * sums), Expr.add(Expr.mul(thread, sums), s))
              )
              const totals = values.map((value) => k.subgroup("ADD", value, threads))
              totals.forEach((total, s) =>
                k.store(k.param(1, dtype, 64 * sums), Expr.add(Expr.mul(thread, sums), s), total)
              )
              const x = dtype === DType.f32 ? floats(64 * sums) : Int32Array.from(floats(64 * sums))
              const found = yield* output(k, [x], [dtype, 64 * sums])
              const expected = Array.from(x, (_, i) => {
                const first = Math.floor(i / sums / threads) * threads
                return Array.from({ length: threads }, (_, t) => x[(first + t) * sums + i % sums]!).reduce((a, b) =>
                  a + b
                )
              })
              assert.deepStrictEqual(found, expected, `${sums} sums of ${DType.print(dtype)} over ${threads}`)
            }
          }
        }
      }))

    it.effect("leave NaN aside where a whole subgroup looks for the largest or the smallest", (context) =>
      Effect.gen(function*() {
        const { subgroupSize } = (yield* Device).profile
        if (subgroupSize === undefined) return context.skip("the device has no subgroups of one size")
        const x = Float32Array.from({ length: subgroupSize }, (_, i) => i % 2 === 0 ? NaN : i % 4 === 1 ? -i : i)
        // NaNs of either sign
        new Uint32Array(x.buffer)[2] = 0xffc00000
        for (const [op, expected] of [["MAX", subgroupSize - 1], ["MIN", 3 - subgroupSize]] as const) {
          const k = new Kernel()
          const thread = k.special("lidx0", subgroupSize)
          const [from, to] = [k.param(0, DType.f32, subgroupSize), k.param(1, DType.f32, subgroupSize)]
          k.store(to, thread, k.subgroup(op, k.load(from, thread), subgroupSize))
          const found = yield* output(k, [x], [DType.f32, subgroupSize])
          assert.deepStrictEqual(found, Array.from(x, () => expected), op)
        }
      }))

    it.effect("respect gates, also where the index is out of range", () =>
      Effect.gen(function*() {
        const k = new Kernel()
        const i = k.special("lidx0", 16)
        const at = Expr.sub(Expr.mul(i, 4), 8)
        const inside = Expr.and(Expr.lt(k.int(-1), at), Expr.lt(at, 16))
        const x = k.load(k.param(0, DType.f32, 16), at, 4, inside)
        k.store(k.param(1, DType.f32, 64), Expr.mul(i, 4), Expr.add(x, 1), Expr.lt(i, 12))
        const x0 = floats(16)
        const expected = Array.from({ length: 64 }, (_, j) => j >= 48 ? 0 : (x0[j - 8] ?? 0) + 1)
        assert.deepStrictEqual(yield* output(k, [x0], [DType.f32, 64]), expected)
      }))

    it.effect("stay inside their buffers, whatever indices memory holds", () =>
      Effect.gen(function*() {
        const k = new Kernel()
        const i = k.special("lidx0", 8)
        const named = Expr.cast(k.load(k.param(0, DType.u32, 8), i), DType.index)
        k.store(k.param(2, DType.f32, 8), i, k.load(k.param(1, DType.f32, 4), named))
        const places = Uint32Array.of(0, 3, 4, 5, 1000, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1)
        const found = yield* output(k, [places, Float32Array.of(10, 11, 12, 13)], [DType.f32, 8])
        assert.deepStrictEqual(found, [10, 13, 13, 13, 13, 13, 13, 13])
      }))

    it.effect("mix widths of access to one buffer", () =>
      Effect.gen(function*() {
        const k = new Kernel()
        const i = k.special("lidx0", 4)
        const [source, target] = [k.param(0, DType.u32, 16), k.param(1, DType.u32, 28)]
        k.store(target, Expr.mul(i, 4), k.load(source, Expr.mul(i, 4), 4))
        k.store(target, Expr.add(i, 16), k.load(source, i))
        k.store(target, Expr.add(Expr.mul(i, 2), 20), k.load(source, Expr.mul(i, 2), 2))
        const x = Uint32Array.from({ length: 16 }, (_, j) => j + 100)
        assert.deepStrictEqual(yield* output(k, [x], [DType.u32, 28]), [...x, ...x.subarray(0, 4), ...x.subarray(0, 8)])
      }))

    it.effect("make constants that WGSL has no literal for", () =>
      Effect.gen(function*() {
        const k = new Kernel()
        const values = [Infinity, -Infinity, -0, 2 ** -149, -(2 ** -126), 3.4028234663852886e38, 1 / 3]
        const words = k.param(0, DType.u32, values.length + 1)
        for (const [i, value] of values.entries()) {
          k.store(words, k.int(i), Expr.bitcast(k.f32(value), DType.u32))
        }
        k.store(words, k.int(values.length), Expr.bitcast(k.f32(NaN), DType.u32))
        const expected = new Uint32Array(new Float32Array([...values, NaN]).buffer)
        assert.deepStrictEqual(yield* output(k, [], [DType.u32, values.length + 1]), [...expected])
      }))
  })
})

// ---------------------------------------------------------------- operations against the reference evaluator

const integers = [0, 1, -1, 2, -2, 3, 7, -7, 8, 31, 100, -100, 65_535, -65_536, 2 ** 31 - 1, -(2 ** 31)]
const reals = [0, 1, -1, 0.5, -0.5, 1.5, -2.75, 3, 10, -10, 100.25, 1e-3, 1e6, -1e6, 65_504, 2 ** -14]
const samples = (dtype: DType.DType): ReadonlyArray<number> =>
  dtype === DType.f32 ? reals : dtype === DType.u32 ? integers.map((x) => x >>> 0) : integers

/** All pairs of samples. */
const pairs = (dtype: DType.DType): readonly [ReadonlyArray<number>, ReadonlyArray<number>] => {
  const values = samples(dtype)
  return [values.flatMap((x) => values.map(() => x)), values.flatMap(() => values)]
}

const array = (dtype: DType.DType, values: ReadonlyArray<number>): Words =>
  dtype === DType.f32
    ? Float32Array.from(values)
    : dtype === DType.i32
    ? Int32Array.from(values)
    : Uint32Array.from(values)

/** Relative errors beyond rounding, from the accuracy table of the WGSL specification (ulp = 2^-23). */
const relativeError: Partial<Record<Op, number>> = {
  FDIV: 2.5 * 2 ** -23,
  SQRT: 2 * 2.5 * 2 ** -23, // inherited from 1 / inverseSqrt
  EXP2: (3 + 2 * 100) * 2 ** -23, // 3 + 2 |x| ulp, |x| up to 100 where the result is finite
  LOG2: 3 * 2 ** -23
}
/** LOG2 is accurate to 2^-21 near one; SIN to the rounding of its reduction by pi. */
const absoluteError: Partial<Record<Op, number>> = { LOG2: 2 ** -21, SIN: 2e-6 }

const close = (op: Op, found: number, expected: number): boolean => {
  if (Object.is(found, expected) || found === expected) return true
  if (Number.isNaN(expected)) return true // NaN operands and results are open in WGSL
  const error = Math.abs(found - expected)
  return error <= (relativeError[op] ?? 0) * Math.abs(expected) || error <= (absoluteError[op] ?? 0)
}

/** The kernel `out[i] = op(a[i], b[i])` with vectors of `lanes`. */
const operation = (n: number, from: DType.DType, lanes: DType.Lanes, build: (a: UOp, b: UOp) => UOp): Kernel => {
  const k = new Kernel()
  const at = Expr.mul(k.special("gidx0", n / lanes), lanes)
  const value = build(k.load(k.param(0, from, n), at, lanes), k.load(k.param(1, from, n), at, lanes))
  const stored = value.dtype.scalar === "bool" ? Expr.cast(value, DType.i32) : value
  k.store(k.param(2, DType.scalarOf(stored.dtype), n), at, stored)
  return k
}

const binary: ReadonlyArray<Op> = ["ADD", "SUB", "MUL", "MAX", "MIN", "CMPLT", "CMPEQ", "CMPNE"]
const integer: ReadonlyArray<Op> = ["FLOORDIV", "FLOORMOD", "AND", "OR", "XOR", "SHL", "SHR"]
const real: ReadonlyArray<Op> = ["FDIV", "SQRT", "EXP2", "LOG2", "SIN", "TRUNC"]
const unary: ReadonlySet<Op> = new Set<Op>(["NEG", "SQRT", "EXP2", "LOG2", "SIN", "TRUNC"])

describe.skipIf(noGpu)("operations agree with the reference evaluator", () => {
  layer(Testing.layer)((it) => {
    const check = (op: Op, from: DType.DType, lanes: DType.Lanes, build: (a: UOp, b: UOp) => UOp) =>
      Effect.gen(function*() {
        const [a, b] = pairs(from).map((values) => Array.from(array(from, values))) as [Array<number>, Array<number>]
        const k = operation(a.length, from, lanes, build)
        const result = build(Expr.splat(Expr.constant(k.arena, from, 0), 1), Expr.constant(k.arena, from, 0)).dtype
        const to = result.scalar === "bool" ? DType.i32 : result
        const found = yield* output(k, [array(from, a), array(from, b)].slice(0, 2), [to, a.length])
        const reference = scalar(op, from, result)
        const expected = array(to, a.map((x, i) => reference(x, b[i]!, 0)))
        for (const [i, x] of a.entries()) {
          if (op === "SIN" && Math.abs(x) > 1e5) continue // beyond what the reduction by pi promises
          if (op === "FLOORDIV" && x === -(2 ** 31) && b[i] === -1) continue // the one quotient that does not fit
          const y = b[i]!
          const shown = `${op} ${DType.print(from)}x${lanes} of ${x} and ${y}: ${found[i]}, not ${expected[i]}`
          assert.isTrue(close(op, found[i]!, expected[i]!), shown)
        }
      })
    for (const dtype of [DType.i32, DType.u32, DType.f32]) {
      for (const lanes of [1, 4] as const) {
        it.effect(`${DType.print(dtype)}, ${lanes} lanes`, () =>
          Effect.gen(function*() {
            for (const op of ["NEG" as Op, ...binary, ...dtype === DType.f32 ? real : integer]) {
              // a unary operation uses its second operand for nothing, but keeps the binding
              const build = unary.has(op)
                ? (a: UOp, b: UOp) => Expr.where(Expr.eq(b, b), Expr.alu(op, a), b)
                : (a: UOp, b: UOp) => Expr.alu(op, a, b)
              yield* check(op, dtype, lanes, build)
            }
          }))
      }
    }

    for (const lanes of [1, 4] as const) {
      it.effect(`products of bytes, ${lanes} lanes`, () =>
        Effect.gen(function*() {
          assert.include((yield* WebGpuInfo).languageFeatures, "packed_4x8_integer_dot_product")
          yield* check("DOT4I8", DType.u32, lanes, (a, b) => Expr.alu("DOT4I8", a, b))
        }))
    }

    it.effect("casts", () =>
      Effect.gen(function*() {
        for (const from of [DType.i32, DType.u32, DType.f32]) {
          for (const to of [DType.i32, DType.u32, DType.f32, DType.bool]) {
            yield* check("CAST", from, 1, (a, b) => Expr.where(Expr.eq(b, b), Expr.cast(a, to), Expr.cast(b, to)))
          }
        }
      }))

    it.effect("division by constants", () =>
      Effect.gen(function*() {
        for (const divisor of [8, 3, -3, 1, 0]) {
          for (const op of ["FLOORDIV", "FLOORMOD"] as const) {
            const k = operation(integers.length, DType.i32, 1, (a) => Expr.alu(op, a, Expr.like(a, divisor)))
            k.load(k.param(1, DType.i32, integers.length), k.int(0))
            const found = yield* output(k, [array(DType.i32, integers), new Int32Array(integers.length)], [
              DType.i32,
              integers.length
            ])
            const reference = scalar(op, DType.i32, DType.i32)
            assert.deepStrictEqual(
              found,
              Array.from(Int32Array.from(integers, (x) => reference(x, divisor, 0))),
              `${op} ${divisor}`
            )
          }
        }
      }))
  })
})

describe.skipIf(noGpu)("halves", () => {
  layer(Testing.layer)((it) => {
    const words = Uint32Array.from({ length: 65_536 }, (_, i) => i)
    const toFloat = scalar("HALF_TO_FLOAT", DType.u32, DType.f32)
    const widen = (): Kernel => {
      const k = new Kernel()
      const at = Expr.mul(Expr.add(Expr.mul(k.special("gidx0", 256), 64), k.special("lidx0", 64)), 4)
      const [halves, floats] = [k.param(0, DType.u32, words.length), k.param(1, DType.f32, words.length)]
      k.store(floats, at, Expr.alu("HALF_TO_FLOAT", k.load(halves, at, 4)))
      return k
    }
    for (const halfSubnormals of [true, false]) {
      it.effect(
        halfSubnormals ? "are unpacked exactly, all of them" : "are converted exactly by integers, all of them",
        () =>
          Effect.gen(function*() {
            const options = halfSubnormals ? {} : { halfSubnormals }
            const [, bytes] = yield* launch(yield* render("widen", widen(), options), [words, new Float32Array(65_536)])
            const found = wordsOf(bytes!, DType.f32)
            for (const word of words) {
              assert.isTrue(Object.is(found[word], toFloat(word, 0, 0)), `half ${word.toString(16)}`)
            }
          })
      )
    }

    it.effect("are packed to the nearest, ties to even", () =>
      Effect.gen(function*() {
        const values = Array.from(words, (word) => toFloat(word, 0, 0)).filter(Number.isFinite)
        // every half, the middle to its neighbour, and a little beside the middle
        const middles = values.flatMap((x) => {
          const step = Math.max(2 ** -24, 2 ** (Math.floor(Math.log2(Math.abs(x) || 1)) - 10))
          return [x, x + step / 2, x + step / 2 * (1 + 2 ** -10), x + step / 2 * (1 - 2 ** -10)]
        })
        const inputs = Float32Array.from([
          ...middles,
          Infinity,
          -Infinity,
          1e30,
          -1e30,
          NaN,
          65_519,
          65_520,
          1e-30,
          -1e-30
        ])
        const n = Math.ceil(inputs.length / 64)
        const k = new Kernel()
        const at = Expr.add(Expr.mul(k.special("gidx0", n), 64), k.special("lidx0", 64))
        k.store(
          k.param(1, DType.u32, inputs.length),
          at,
          Expr.alu("FLOAT_TO_HALF", k.load(k.param(0, DType.f32, inputs.length), at)),
          Expr.lt(at, inputs.length)
        )
        const found = yield* output(k, [inputs], [DType.u32, inputs.length])
        const toHalf = scalar("FLOAT_TO_HALF", DType.f32, DType.u32)
        for (const [i, x] of inputs.entries()) {
          if (found[i] !== toHalf(x, 0, 0)) assert.fail(`${x}: ${found[i]}, not ${toHalf(x, 0, 0)}`)
        }
      }))
  })
})
