import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { Arena, UOp } from "@tg/core-uop/UOp"

/** A seeded source of numbers in 0 .. n-1. */
export type Random = (n: number) => number

export const random = (seed: number): Random => {
  let state = (seed * 2654435761 + 12345) >>> 0
  return (n) => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0
    const mixed = Math.imul(state ^ (state >>> 12), 0x297a2d39) >>> 0
    return ((mixed ^ (mixed >>> 15)) >>> 0) % n
  }
}

/** Random integer and boolean expressions over a few small variables. */
export const generator = (next: Random, arena: Arena) => {
  const small = [1, 2, 3, 4, 5, 6, 8, 12, 16]
  const pick = <A>(list: ReadonlyArray<A>): A => list[next(list.length)]!
  const leaves: ReadonlyArray<UOp> = [
    Expr.range(arena, pick(small), 0, "GLOBAL"),
    Expr.range(arena, pick(small), 1, "GLOBAL"),
    Expr.range(arena, pick(small), 2, "REDUCE"),
    Expr.variable(arena, "v", -pick(small), pick(small)),
    Expr.variable(arena, "n", 1, pick(small))
  ]
  const symbolic = Expr.range(arena, leaves[4]!, 3, "REDUCE")
  const constant = (): UOp => Expr.int(arena, pick([...small, ...small, 0, -1, -2, -3, -4, 24, 32]))

  const leaf = (): UOp => {
    const i = next(8)
    return i < 5 ? leaves[i]! : i === 5 ? symbolic : constant()
  }

  const index = (depth: number): UOp => {
    if (depth === 0 || next(8) === 0) return leaf()
    const a = (): UOp => index(depth - 1)
    switch (next(16)) {
      case 0:
      case 1:
      case 2:
        return Expr.add(a(), a())
      case 3:
        return Expr.sub(a(), a())
      case 4:
        return next(3) === 0 ? Expr.mul(a(), leaf()) : Expr.neg(a())
      case 5:
      case 6:
        return Expr.mul(a(), constant())
      case 7:
      case 8:
        return Expr.floordiv(a(), divisor())
      case 9:
      case 10:
        return Expr.floormod(a(), divisor())
      case 11:
        return next(2) === 0 ? Expr.max(a(), a()) : Expr.min(a(), a())
      case 12:
        return Expr.where(bool(depth - 1), a(), a())
      case 13: {
        // the two halves of a division
        const x = a()
        const c = pick(small)
        return Expr.add(Expr.mul(Expr.floordiv(x, c), c), Expr.floormod(x, c))
      }
      case 14:
        return next(2) === 0 ? Expr.shl(a(), next(4)) : Expr.shr(a(), next(4))
      default:
        return next(2) === 0 ? Expr.and(a(), pick([1, 3, 7, 15])) : Expr.cast(bool(depth - 1), DType.index)
    }
  }

  const divisor = (): UOp =>
    next(10) === 0 ? leaves[4]! : next(8) === 0 ? Expr.int(arena, -pick(small)) : Expr.int(arena, pick(small))

  const bool = (depth: number): UOp => {
    if (depth === 0) return Expr.constant(arena, DType.bool, next(2) === 0)
    const a = (): UOp => index(depth - 1)
    switch (next(10)) {
      case 0:
      case 1:
      case 2:
        return Expr.lt(a(), next(2) === 0 ? constant() : a())
      case 3:
        return next(2) === 0 ? Expr.eq(a(), a()) : Expr.ne(a(), a())
      case 4:
        return Expr.not(bool(depth - 1))
      case 5:
      case 6:
        return Expr.and(bool(depth - 1), bool(depth - 1))
      case 7:
        return Expr.or(bool(depth - 1), bool(depth - 1))
      case 8:
        return Expr.alu("CMPEQ", bool(depth - 1), bool(depth - 1))
      default:
        return Expr.where(bool(depth - 1), bool(depth - 1), bool(depth - 1))
    }
  }

  const machine = (scalar: "i32" | "u32", depth: number): UOp => {
    const dtype = DType.make(scalar)
    const number = (): UOp =>
      Expr.constant(arena, dtype, wrap(scalar, pick([...small, 0, -1, 255, 65535, 0x7fffffff, 0x80000000, 31])))
    if (depth === 0 || next(8) === 0) return next(3) === 0 ? number() : Expr.cast(leaf(), dtype)
    const a = (): UOp => machine(scalar, depth - 1)
    const b = (): UOp => next(2) === 0 ? number() : a()
    switch (next(9)) {
      case 0:
        return Expr.add(a(), b())
      case 1:
        return Expr.sub(a(), b())
      case 2:
        return Expr.mul(a(), b())
      case 3:
        return Expr.alu(pick(["AND", "OR", "XOR"] as const), a(), b())
      case 4:
        return Expr.alu(pick(["SHL", "SHR"] as const), a(), Expr.constant(arena, dtype, next(32)))
      case 5:
        return Expr.alu(pick(["FLOORDIV", "FLOORMOD"] as const), a(), Expr.constant(arena, dtype, pick(small)))
      case 6:
        return Expr.alu(pick(["MAX", "MIN"] as const), a(), b())
      case 7:
        return Expr.where(Expr.alu(pick(["CMPLT", "CMPEQ", "CMPNE"] as const), a(), b()), a(), b())
      default:
        return next(2) === 0 ? Expr.neg(a()) : Expr.cast(machine(scalar === "i32" ? "u32" : "i32", depth - 1), dtype)
    }
  }

  const conjunction = (clauses: number): UOp => {
    let result = Expr.lt(index(2), constant())
    for (let i = 1; i < clauses; i++) {
      const clause = Expr.lt(index(2), constant())
      result = Expr.and(result, next(2) === 0 ? Expr.not(clause) : clause)
    }
    return result
  }

  return { index, bool, machine, conjunction }
}

const wrap = (scalar: "i32" | "u32", value: number): number => scalar === "i32" ? value | 0 : value >>> 0
