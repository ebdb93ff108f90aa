import { describe, expect, it } from "vitest"
import * as Bounds from "../src/Bounds.ts"
import * as DType from "../src/DType.ts"
import * as Expr from "../src/Expr.ts"
import { Arena, type Range, type UOp } from "../src/UOp.ts"

const values: ReadonlyArray<Range> = [
  Bounds.empty,
  Bounds.all,
  { min: 0, max: 0 },
  { min: -3, max: 5 },
  { min: 2, max: 2 },
  { min: 4, max: 9 },
  { min: -Infinity, max: 0 },
  { min: 0, max: Infinity },
  { min: -(2 ** 31), max: 2 ** 31 - 1 }
]

describe("the lattice of ranges", () => {
  const { join, meet, one, zero } = Bounds.Lattice
  const { equals } = Bounds.EqRange
  const law = (name: string, holds: (a: Range, b: Range, c: Range) => boolean): void => {
    it(name, () => {
      for (const a of values) {
        for (const b of values) {
          for (const c of values) {
            expect(holds(a, b, c), JSON.stringify([a, b, c])).toBe(true)
          }
        }
      }
    })
  }
  law("join is associative", (a, b, c) => equals(join(join(a, b), c), join(a, join(b, c))))
  law("meet is associative", (a, b, c) => equals(meet(meet(a, b), c), meet(a, meet(b, c))))
  law("join commutes", (a, b) => equals(join(a, b), join(b, a)))
  law("meet commutes", (a, b) => equals(meet(a, b), meet(b, a)))
  law("join is idempotent", (a) => equals(join(a, a), a))
  law("meet is idempotent", (a) => equals(meet(a, a), a))
  law("join absorbs meet", (a, b) => equals(join(a, meet(a, b)), a))
  law("meet absorbs join", (a, b) => equals(meet(a, join(a, b)), a))
  law("the empty range is neutral for join", (a) => equals(join(a, zero), a))
  law("every integer is neutral for meet", (a) => equals(meet(a, one), a))
})

describe("bounds of expressions", () => {
  const arena = new Arena()
  const v = Expr.variable(arena, "v", -5, 9)
  const r = Expr.range(arena, 8, 0, "GLOBAL")
  const bounds = (x: UOp, min: number, max: number): void => {
    it(`${x.op} ${min} .. ${max}`, () => expect(Bounds.of(x)).toEqual({ min, max }))
  }
  bounds(r, 0, 7)
  bounds(Expr.range(arena, v, 1, "LOOP"), 0, 8)
  bounds(Expr.add(v, r), -5, 16)
  bounds(Expr.sub(v, r), -12, 9)
  bounds(Expr.mul(v, -2), -18, 10)
  bounds(Expr.mul(v, v), -45, 81)
  bounds(Expr.floordiv(v, 4), -2, 2)
  bounds(Expr.floordiv(v, -4), -3, 1)
  bounds(Expr.floormod(v, 4), 0, 3)
  bounds(Expr.floormod(Expr.add(r, 16), 16), 0, 7)
  bounds(Expr.max(v, 3), 3, 9)
  bounds(Expr.lt(r, 8), 1, 1)
  bounds(Expr.lt(r, 4), 0, 1)
  bounds(Expr.ne(r, 9), 1, 1)
  bounds(Expr.where(Expr.lt(r, 4), Expr.int(arena, 20), v), -5, 20)
  bounds(Expr.add(Expr.cast(r, DType.i32), 2 ** 31 - 1), -(2 ** 31), 2 ** 31 - 1)
  bounds(Expr.and(Expr.cast(v, DType.u32), 15), 0, 15)
  bounds(Expr.shr(Expr.cast(v, DType.u32), 28), 0, 15)

  const least = (op: "MIN" | "MAX" | "ADD"): UOp =>
    arena.make("SUBGROUP_REDUCE", r.dtype, [Expr.add(r, v)], { op, threads: 32 })
  bounds(least("MIN"), -5, 16)
  bounds(least("MAX"), -5, 16)
  bounds(least("ADD"), -(2 ** 31), 2 ** 31 - 1)

  it("knows single values", () => {
    expect(Bounds.constantOf(Expr.floordiv(r, 8))).toBe(0)
    expect(Bounds.constantOf(r)).toBeUndefined()
  })
  it("stays linear on a graph that grows", () => {
    let sum: UOp = v
    for (let i = 0; i < 20_000; i++) Bounds.of(sum = Expr.add(sum, 1))
    expect(Bounds.of(sum)).toEqual({ min: 19_995, max: 20_009 })
  })
})
