import { assert, describe, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { choose } from "../src/Heuristics.ts"

const units: DeviceProfile.DeviceProfile = { ...DeviceProfile.h200, matrixUnits: true }

const printed = (kernel: UOp, profile = units): ReadonlyArray<string> => choose(kernel, profile).map(Opt.print)

const param = (arena: Arena, slot: number, length: number, dtype = DType.f32): UOp =>
  arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })

const half = (x: UOp): UOp => Expr.alu("HALF_TO_FLOAT", Expr.alu("FLOAT_TO_HALF", x))

/** `out[row, column] = sum f(a[row, term]) b[column, term]`, of halves, with so many whole pages of 64 columns. */
const product = (rows: number, f = (x: UOp): UOp => x): UOp => {
  const arena = new Arena()
  const columns = Expr.mul(Expr.variable(arena, "pages", 1, 8), 64)
  const [row, column] = [Expr.range(arena, rows, 0, "GLOBAL"), Expr.range(arena, columns, 1, "GLOBAL")]
  const term = Expr.range(arena, 128, 2, "REDUCE")
  const a = Expr.load(Expr.element(param(arena, 1, rows * 128), Expr.add(Expr.mul(row, 128), term)))
  const b = Expr.load(Expr.element(param(arena, 2, 512 * 128), Expr.add(Expr.mul(column, 128), term)))
  const sum = Expr.reduce("ADD", Expr.mul(half(f(a)), half(b)), [term])
  const out = Expr.element(param(arena, 0, rows * 512), Expr.add(Expr.mul(row, 512), column))
  return arena.make("SINK", DType.none, [arena.make("END", DType.none, [Expr.store(out, sum), row, column])])
}

/** `out[row] = max x[row, position]`, over so many whole pages of 64 positions. */
const largest = (rows: number): UOp => {
  const arena = new Arena()
  const row = Expr.range(arena, rows, 0, "GLOBAL")
  const position = Expr.range(arena, Expr.mul(Expr.variable(arena, "pages", 1, 256), 64), 1, "REDUCE")
  const x = Expr.load(Expr.element(param(arena, 1, rows * 16384), Expr.add(Expr.mul(row, 16384), position)))
  const store = Expr.store(Expr.element(param(arena, 0, rows), row), Expr.reduce("MAX", x, [position]))
  return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, row])])
}

describe("kernels for matrix units", () => {
  it("have tiles of 64 rows and columns, symbolic ones included", () => {
    assert.deepStrictEqual(printed(product(320)), ["MATRIX(r0, 64)", "MATRIX(r1, 64)", "MATRIX(r2, 64)"])
    assert.deepStrictEqual(printed(product(16)), ["MATRIX(r0, 16)", "MATRIX(r1, 64)", "MATRIX(r2, 64)"])
  })

  it("compute what is costly once for as many columns as there are", () => {
    const costly = printed(product(64, (x) => Expr.alu("EXP2", x)))
    assert.deepStrictEqual(costly, ["MATRIX(r0, 64)", "MATRIX(r1, 64)", "MATRIX(r2, 32)"])
  })

  it("are others where rows make no whole fragments, or the device has no such units", () => {
    for (const opts of [printed(product(24)), printed(product(320), DeviceProfile.h200)]) {
      assert.notInclude(opts.join(), "MATRIX")
      assert.isNotEmpty(opts)
    }
  })
})

it("a context's few rows are shared among as many threads as saturate the device", () => {
  assert.deepStrictEqual(printed(largest(320)), ["UNROLL(r1, 4)", "GROUP(r1, 256)"])
  // a subgroup for each row does
  assert.notInclude(printed(largest(8192)).join(), "GROUP(r1, 256)")
})
