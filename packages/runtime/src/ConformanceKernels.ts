import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { Arena, UOp } from "@tg/core-uop/UOp"

/** Elements of most buffers: not a multiple of a workgroup. */
export const count = 1003
/** Elements of the large launch: more workgroups of 64 than one grid axis may have, at 65535. */
export const largeCount = 64 * 65535 + 321
export const shiftCount = 37
export const sumShape = { rows: 5, columns: 301 }

const param = (arena: Arena, slot: number, dtype: DType.DType, length: number): UOp =>
  arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })
const sink = (arena: Arena, name: string, store: UOp, ...ranges: ReadonlyArray<UOp>): UOp =>
  arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, ...ranges])], { name })
const adding = (target: UOp, value: UOp): UOp => target.arena.make("STORE", DType.none, [target, value], { op: "ADD" })
const unsigned = (x: UOp): UOp => Expr.cast(x, DType.u32)

/** `addOne`: u32, slot 0[i] = slot 1[i] + 1 for i below `count`. */
export const addOne = (arena: Arena): UOp => {
  const i = Expr.range(arena, count, 0, "GLOBAL")
  const x = Expr.load(Expr.element(param(arena, 1, DType.u32, count), i))
  return sink(arena, "addOne", Expr.store(Expr.element(param(arena, 0, DType.u32, count), i), Expr.add(x, 1)), i)
}

/** `mix`: u32, slot 0[i] = 3 * slot 0[i] + slot 1[i], in place. */
export const mix = (arena: Arena): UOp => {
  const i = Expr.range(arena, count, 0, "GLOBAL")
  const out = Expr.element(param(arena, 0, DType.u32, count), i)
  const x = Expr.load(Expr.element(param(arena, 1, DType.u32, count), i))
  return sink(arena, "mix", Expr.store(out, Expr.add(Expr.mul(Expr.load(out), 3), x)), i)
}

/** `large`: u32, slot 0[i] = 3 * i for i below `largeCount`. */
export const large = (arena: Arena): UOp => {
  const i = Expr.range(arena, largeCount, 0, "GLOBAL")
  const out = Expr.element(param(arena, 0, DType.u32, largeCount), i)
  return sink(arena, "large", Expr.store(out, Expr.mul(unsigned(i), 3)), i)
}

/** `rowSums`: f32, slot 0[r] = sum of row r of slot 1. */
export const rowSums = (arena: Arena): UOp => {
  const { columns, rows } = sumShape
  const i = Expr.range(arena, rows, 0, "GLOBAL")
  const k = Expr.range(arena, columns, 1, "REDUCE")
  const x = Expr.load(Expr.element(param(arena, 1, DType.f32, rows * columns), Expr.add(Expr.mul(i, columns), k)))
  const out = Expr.element(param(arena, 0, DType.f32, rows), i)
  return sink(arena, "rowSums", Expr.store(out, Expr.reduce("ADD", x, [k])), i)
}

/** `shift`: u32, slot 0[i] = slot 1[i - 1] where that exists, else 0, for i below `shiftCount` + 2. */
export const shift = (arena: Arena): UOp => {
  const i = Expr.range(arena, shiftCount + 2, 0, "GLOBAL")
  const inside = Expr.and(Expr.lt(Expr.int(arena, 0), i), Expr.lt(i, shiftCount + 1))
  const x = Expr.load(Expr.element(param(arena, 1, DType.u32, shiftCount), Expr.sub(i, 1), inside))
  return sink(arena, "shift", Expr.store(Expr.element(param(arena, 0, DType.u32, shiftCount + 2), i), x), i)
}

/** `constant`: u32, slot 0[0] = 5. */
export const constant = (arena: Arena): UOp => {
  const i = Expr.range(arena, 1, 0, "GLOBAL")
  const out = Expr.element(param(arena, 0, DType.u32, 1), i)
  return sink(arena, "constant", Expr.store(out, unsigned(Expr.add(i, 5))), i)
}

/** `addedTo`: u32, slot 0[i] += slot 1[i] for i below `count`, without atomics: no two iterations add to one element. */
export const addedTo = (arena: Arena): UOp => {
  const i = Expr.range(arena, count, 0, "GLOBAL")
  const x = Expr.load(Expr.element(param(arena, 1, DType.u32, count), i))
  return sink(arena, "addedTo", adding(Expr.element(param(arena, 0, DType.u32, count), i), x), i)
}

/** Sums that `counted` has. */
export const sums = 5

/** `counted`: slot 0[slot 1[i]] += slot 2[i] for i below `count`, atomically, where slot 1[i] is below `sums`. */
export const counted = (dtype: DType.DType) => (arena: Arena): UOp => {
  const i = Expr.range(arena, count, 0, "GLOBAL")
  const at = Expr.cast(Expr.load(Expr.element(param(arena, 1, DType.u32, count), i)), DType.index)
  const out = arena.make("PARAM", dtype, [Expr.int(arena, sums)], { slot: 0, coherent: true })
  const x = Expr.load(Expr.element(param(arena, 2, dtype, count), i))
  return sink(arena, `counted_${dtype.scalar}`, adding(Expr.element(out, at, Expr.lt(at, sums)), x), i)
}

/** `symbolic`: u32, slot 0[i] = v + i for i below the variable n. */
export const symbolic = (arena: Arena): UOp => {
  const n = Expr.variable(arena, "n", 0, count)
  const v = Expr.variable(arena, "v", 0, 2 ** 30)
  const i = Expr.range(arena, n, 0, "GLOBAL")
  const out = Expr.element(param(arena, 0, DType.u32, count), i)
  return sink(arena, "symbolic", Expr.store(out, unsigned(Expr.add(v, i))), i)
}
